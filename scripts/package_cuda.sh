#!/usr/bin/env bash
# Makes build/package/libmuster_cuda-VERSION-cudaMAJOR-linux-x86_64.tar.gz, the CUDA backend for a package of
# the same version: unpacked in the same folder, it adds one library and its licence. The package itself never
# needs CUDA. The library has code for every GPU architecture that both this nvcc and the backend support; only for
# later ones the driver has to compile it. scripts/package.sh calls this script after making a package.
#
#   scripts/package_cuda.sh [PACKAGE]   # default: the one in build/package
#
# Needs nvcc (CUDACXX, if there are several), and cuDNN's headers beside it or in MUSTER_CUDNN_INCLUDE_DIR, and should
# run on Debian 12. Without nvcc, it reports that and ends with exit code 0. With cuobjdump (beside nvcc, or on PATH) it
# checks which code is in the library. Besides the package, the library needs NVIDIA's driver, and cuBLAS of the same
# major version.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/package-cuda/$(tr / - <<<"${CUDACXX:-nvcc}")
. scripts/bundle.sh

fail() { echo "package_cuda.sh: $*" >&2; exit 1; }

cmake -S . -B "$build" -G Ninja -Wno-dev -DCMAKE_BUILD_TYPE=Release -DMUSTER_BUILD_TESTS=OFF \
  -DMUSTER_BUILD_BENCH=OFF -DMUSTER_MOLD=OFF -DMUSTER_PORTABLE=ON -DMUSTER_CUDA_ARCHITECTURES=all \
  ${MUSTER_CUDNN_INCLUDE_DIR:+-DMUSTER_CUDNN_INCLUDE_DIR="$MUSTER_CUDNN_INCLUDE_DIR"} >/dev/null
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
version=$(cached CMAKE_PROJECT_VERSION)
name=muster-$version-linux-x86_64
package=${1:-build/package/$name.tar.gz}
# A variable, not a pipe: grep -q would close the pipe early, which would count as a failure.
targets=$(cmake --build "$build" --target help)
if ! grep -q '^muster_cuda:' <<<"$targets"; then
  echo "No package of the CUDA backend: there is no CUDA toolkit, or CMake rejected it: cmake -S . -B $build"
  exit 0
fi
[[ -f $package ]] || fail "$package does not exist; make it with scripts/package.sh"
[[ $(cached MUSTER_CUDNN_INCLUDE_DIR) != *NOTFOUND ]] ||
  fail "cuDNN's headers are missing; name them in MUSTER_CUDNN_INCLUDE_DIR"
echo "Building the CUDA backend in $build ..."
cmake --build "$build" --target muster_cuda -- --quiet
library=$build/$name/lib/libmuster_cuda.so
rm -rf "${build:?}/$name"
install -D -s -m644 "$build/lib/libmuster_cuda.so" "$library"

# Every library except those of CUDA must be in the package or on every system.
needed=$(objdump -p "$library" | awk '$1 == "NEEDED" { print $2 }')
contents=$(tar -tzf "$package")
for soname in $needed; do
  [[ $soname =~ $system || $soname =~ ^libcublas(Lt)?\.so ]] && continue
  grep -qxF "$name/lib/$soname" <<<"$contents" || fail "libmuster_cuda.so needs $soname, which $package does not have"
done
cublas=$(grep -E '^libcublas\.so' <<<"$needed") || fail "expected libcublas.so.MAJOR among $needed"
major=${cublas##*.}
scripts/check_symbols.sh "$library"

# Each source with kernels must be there once for each architecture, as "15 sm_90.cubin" (or .ptx).
nvcc=$(cached MUSTER_NVCC)
if cuobjdump=$(PATH=$PATH:${nvcc%/*} command -v cuobjdump); then
  sources=$(find worker/backend/cuda -name '*.cu' | wc -l)
  expected=$(cached MUSTER_CUDA_CODE | tr ';' '\n' |
    sed "s/\(.*\)-real/$sources sm_\1.cubin/; s/\(.*\)-virtual/$sources sm_\1.ptx/" | sort | paste -sd,)
  listed=$("$cuobjdump" --list-elf "$library" && "$cuobjdump" --list-ptx "$library") ||
    fail "$cuobjdump cannot read $library"
  found=$(sed -n 's/.*\.\(sm_[0-9a-z]*\.\)/\1/p' <<<"$listed" | sort | uniq -c | awk '{ print $1, $2 }' |
    sort | paste -sd,)
  [[ $found == "$expected" ]] || fail "code in the library: expected $expected, found $found"
  echo "Code in the library: $found"
else
  echo "Not checked which code is in the library: cuobjdump is neither beside nvcc nor on PATH (PyPI's" \
    "nvidia-cuda-cuobjdump has it)."
fi

mkdir -p "$build/$name"/licences
find . -maxdepth 1 \( -name NOTICE -o -name 'LICENSE*' \) -exec cp {} "$build/$name/licences/" \;
cat >"$build/$name"/licences/libmuster_cuda.txt <<END
lib/libmuster_cuda.so contains NVIDIA's CUDA runtime (libcudart_static.a, CUDA $major), which its licence allows to
pass on with a program: https://docs.nvidia.com/cuda/eula. cuBLAS and cuDNN are not bundled.
END
result=$build/libmuster_cuda-$version-cuda$major-linux-x86_64.tar.gz
pack "$build" "$name" >"$result"

# Check that a worker of the package loads it, as far as that works without a GPU.
try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
for file in "$package" "$result"; do tar -C "$try" -xzf "$file"; done
cd "$try/$name"
code=0
bin/muster-worker describe-gpu >"$try/log" 2>&1 || code=$?
cd "$OLDPWD"
said=$(tail -n 1 "$try/log")
case "$code $said" in
  0*) echo "A worker of the package computes on the GPU of this machine." ;;
  *"no NVIDIA driver"* | *"CUDA finds no usable GPU"*) echo "A worker of the package loads it, but this machine has no GPU." ;;
  *"was not found; install the CUDA toolkit's cuBLAS"*) echo "A worker of the package finds it, but this machine has no cuBLAS." ;;
  *) fail "a worker of the package cannot use it: $said" ;;
esac
mkdir -p build/package
mv "$result" build/package/
result=build/package/${result##*/}
echo "$result: $(stat -c %s "$result" | awk '{ printf "%.1f MB", $1 / 1e6 }'); unpack it in the same folder as $name.tar.gz."
