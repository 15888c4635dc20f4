#!/usr/bin/env bash
# Makes build/package/muster_train-VERSION-py3-none-manylinux_2_GLIBC_x86_64.whl from the package that
# scripts/package_here.sh has made: programs, libraries, licences and the Python package.
#
#   scripts/wheel.sh [PACKAGE.tar.gz]     # default: that of build/package
#
# The glibc in the name is the newest that a program or library needs.
set -euo pipefail
cd "$(dirname "$0")/.."
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
