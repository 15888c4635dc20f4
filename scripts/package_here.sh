#!/usr/bin/env bash
# Builds the package on this machine, which should be Debian 12: only its libraries and compiler are tried. Users run
# scripts/package.sh instead.
#
# The CUDA backend has its own package (scripts/package_cuda.sh); this one needs no CUDA.
#
# Makes build/package/muster-VERSION-linux-x86_64.tar.gz, with
#   bin/ lib/                 the programs, and every library except glibc, libstdc++ and libgcc_s
#   include/ python/          for programs that train their own model
#   PACKAGE.txt configs/ README.md CHANGELOG.md docs/ proto/
#   NOTICE licences/          licences of the bundled libraries, and a list of their sources
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/package
. scripts/bundle.sh

# Libraries that are compiled into the programs.
compiled_in=(libcli11-dev nlohmann-json3-dev cppzmq-dev libarchive-dev libzmq3-dev libspdlog-dev)

scripts/setup.sh
archive=$(static_libarchive) || { echo "package_here.sh: expected libarchive.a in libarchive-dev" >&2; exit 1; }
echo "Building $build (a few minutes) ..."
# mold keeps references of removed sections, some of them to a newer glibc.
cmake -S . -B $build -G Ninja -Wno-dev -DCMAKE_BUILD_TYPE=Release -DMUSTER_BUILD_TESTS=OFF -DMUSTER_MOLD=OFF \
  -DMUSTER_PORTABLE=ON -DMUSTER_CUDA=OFF -DLibArchive_LIBRARY="$archive" >/dev/null
cmake --build $build --target muster muster-server muster-worker muster_client_library sync_bench update_bench \
  -- --quiet
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' $build/CMakeCache.txt)
name=muster-$version-linux-x86_64
stage=$build/$name

rm -rf "$stage" $build/installed
cmake --install $build --prefix $build/installed --strip >/dev/null
mkdir -p "$stage"/{bin,lib,docs,proto,licences}
cp $build/installed/bin/* "$stage/bin/"
cp -a $build/installed/lib/libmuster_client.so* "$stage/lib/"
cp -r $build/installed/include "$stage/"
mkdir "$stage/python"
cp -r python/{muster,README.md} "$stage/python/"
cp -r configs examples README.md CHANGELOG.md NOTICE "$stage/"
find "$stage" -name __pycache__ -prune -exec rm -r {} +
find . -maxdepth 1 -name 'LICENSE*' -exec cp {} "$stage/" \;
cat >"$stage/PACKAGE.txt" <<END
Muster $version for Linux on x86-64 with AVX2. Nothing needs to be installed:

    bin/muster launch configs/smoke.txtpb    # trains a small network on synthetic images
    bin/muster --help

README.md is that of the source; scripts/, tests/ and CONTRIBUTING.md are only there. licences/
lists the bundled libraries and their sources.
END
cp docs/*.md "$stage/docs/"
cp -r docs/images docs/services "$stage/docs/"
cp proto/PROTOCOL.md proto/config.proto "$stage/proto/"

# add_licence PACKAGE: copies the licence, and those that it refers to.
add_licence() {
  local text="/usr/share/doc/$1/copyright" common
  [[ -f $text ]] || { echo "package_here.sh: no licence of $1 at $text" >&2; exit 1; }
  cp -L "$text" "$stage/licences/$1.txt"
  { grep -oE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$text" || true; } | sort -u |
    while read -r common; do
      [[ ! -f $common ]] || cp -L "$common" "$stage/licences/"
    done
}

# owner FILE: the package that owns the file, which may be listed with or without /usr.
owner() { { dpkg -S "$1" || dpkg -S "${1#/usr}" || dpkg -S "/usr$1"; } 2>/dev/null | head -n 1 | cut -d: -f1; }

list="$stage/licences/LIBRARIES.txt"
{
  echo "Bundled from Debian, unchanged. PACKAGE.txt in this folder is the licence of PACKAGE. For its"
  echo "source use apt-get source PACKAGE=VERSION, or https://snapshot.debian.org."
  echo
  printf '%-24s %9s  %-22s %s\n' file bytes package version
} >"$list"
while read -r soname path; do
  [[ $soname =~ $system ]] && continue
  path=$(readlink -f "$path")
  package=$(owner "$path")
  [[ -n $package ]] || { echo "package_here.sh: no Debian package owns $path" >&2; exit 1; }
  library=$(sed -E 's/\.so.*//; s/-[0-9].*//' <<<"$soname")
  grep -qwF "$library" NOTICE ||
    { echo "package_here.sh: NOTICE does not name $library, which the package bundles (from $package)" >&2; exit 1; }
  install -m644 "$path" "$stage/lib/$soname"
  add_licence "$package"
  printf '%-24s %9d  %-22s %s\n' "$soname" "$(stat -c %s "$path")" "$package" \
    "$(dpkg-query -W -f '${Version}' "$package")" >>"$list"
done < <(libraries_of "$stage"/bin/*)
for package in "${compiled_in[@]}"; do
  add_licence "$package"
  printf '%-24s %9s  %-22s %s\n' "(in the programs)" "" "$package" \
    "$(dpkg-query -W -f '${Version}' "$package")" >>"$list"
done

# Every library must be in the package or belong to the system.
stray=$(libraries_of "$stage"/bin/* | grep -vF "$(realpath "$stage")/bin/../lib/" | grep -vE "$system" || true)
if [[ -n $stray ]]; then
  printf 'package_here.sh: expected every library in %s/lib, but these are from elsewhere:\n%s\n' \
    "$stage" "$stray" >&2
  exit 1
fi
scripts/check_symbols.sh "$stage"/bin/* "$stage"/lib/*
hidden=$(find "$stage" -name '.*' | head -n 3)
[[ -z $hidden ]] || { echo "package_here.sh: expected no hidden files, found $hidden" >&2; exit 1; }

pack $build "$name" >"$stage.tar.gz"
cat "$list"
megabytes() { awk '{ printf "%.1f MB", $1 / 1e6 }' <<<"$1"; }
bytes() { du -sb "$1" | cut -f1; }
echo
echo "$name: bin $(megabytes "$(bytes "$stage/bin")"), lib $(megabytes "$(bytes "$stage/lib")") in" \
  "$(find "$stage/lib" -type f | wc -l) libraries, all of it $(megabytes "$(bytes "$stage")")"
echo "$stage.tar.gz: $(megabytes "$(stat -c %s "$stage.tar.gz")")"
