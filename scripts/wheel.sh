#!/usr/bin/env bash
# Makes build/package/muster_train-VERSION-py3-none-manylinux_2_GLIBC_x86_64.whl from the package that
# scripts/package_here.sh has made: programs, libraries, licences and the Python package.
#
#   scripts/wheel.sh [PACKAGE.tar.gz]     # default: that of build/package
#   scripts/wheel.sh --check FILE.whl     # trains with it in a bare Debian 12 and 13; needs root
#
# The glibc in the name is the newest that a program or library needs.
set -euo pipefail
cd "$(dirname "$0")/.."

# check_in FILE RELEASE: as an ordinary user, with Debian's Python and NumPy. Sets $weights to the hash.
check_in() {
  local root=$workspace/wheel-$2 log=$workspace/wheel-$2.log
  make_root "$2" "$root"
  in_root "$root" root apt-get install -y -qq python3-venv python3-numpy >"$log" 2>&1
  add_user "$root" user
  cp "$1" examples/numpy_linear.* "$root/home/user"
  in_root "$root" user sh -euc '
    python3 --version
    python3 -m venv --system-site-packages own
    own/bin/pip install -q --no-index ./*.whl
    own/bin/muster launch numpy_linear.txtpb --workers 2 -- own/bin/python numpy_linear.py
  ' >>"$log" 2>&1 || { echo "$0: in a bare $2, the wheel failed:" >&2 && cat "$log" >&2 && return 1; }
  weights=$(awk '$1 == "weights" && $2 == "hash" { print $3 }' "$log")
  echo "In a bare $2, $(grep '^Python 3' "$log"): $(grep Completed "$log"), weights hash $weights"
}

if [[ ${1:-} == --check ]]; then
  # shellcheck source=scripts/debian_root.sh
  . scripts/debian_root.sh
  new_workspace
  check_in "$2" bookworm
  first=$weights
  check_in "$2" trixie
  [[ -n $first && $first == "$weights" ]] || { echo "wheel.sh: the bits differ: $first, $weights" >&2; exit 1; }
  exit
fi
package=${1:-$(find build/package -maxdepth 1 -name 'muster-*-linux-x86_64.tar.gz' | head -n 1)}
[[ -f $package ]] || { echo "wheel.sh: expected a package; make one with scripts/package.sh" >&2; exit 1; }
workspace=$(mktemp -d)
trap 'rm -rf "$workspace"' EXIT
mkdir "$workspace/package"
tar -C "$workspace/package" --strip-components=1 -xzf "$package"
cp -r python "$workspace/wheel"
inside=$workspace/wheel/muster
rm -rf "$inside/__pycache__"
mkdir "$inside"/{bin,lib,licences}
cp "$workspace"/package/bin/muster{,-server,-worker} "$inside/bin/"
find "$workspace/package/lib" -type f ! -name 'libmuster_client.so.*' -exec cp {} "$inside/lib/" \;
cp -L "$workspace/package/lib/libmuster_client.so" "$inside/lib/"  # without its version
cp "$workspace"/package/licences/* "$workspace/package/NOTICE" "$inside/licences/"
version=$(basename "$package" | cut -d- -f2)
echo "$version" >"$workspace/wheel/VERSION"
glibc=$(objdump -T "$inside"/bin/* "$inside"/lib/* 2>/dev/null | grep -oE 'GLIBC_2\.[0-9]+' | sort -Vu | tail -n 1)
platform=manylinux_${glibc#GLIBC_}_x86_64
platform=${platform/2./2_}
python3 -m pip wheel -q --no-deps -w build/package "$workspace/wheel" \
  --config-settings=--build-option=--plat-name="$platform"
ls -l build/package/*.whl
