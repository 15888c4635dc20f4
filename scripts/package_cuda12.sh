#!/usr/bin/env bash
# Makes the package of the CUDA backend for CUDA 12 (scripts/package_cuda.sh), for drivers from 525 on and GPUs
# that CUDA 13 no longer supports: scripts/package_cuda12.sh PACKAGE
#
# Builds HEAD in a new Debian 12 with the CUDA 12.4 of Debian 13's non-free section, whose compilers need no newer
# glibc, and with cuDNN's headers from NVIDIA's wheel. Needs root, a network with apt's mirror and PyPI, and 8 GB.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -f ${1:-} ]] || { echo "package_cuda12.sh: expected a package, got '${1:-}'" >&2; exit 2; }
package=$(realpath "$1")

# shellcheck source=scripts/debian_root.sh
. scripts/debian_root.sh
new_workspace
make_root trixie "$workspace/trixie"
sed -i 's/ main$/ main non-free/' "$workspace/trixie/etc/apt/sources.list"
# Without the sandbox of apt, which could not write here.
in_root "$workspace/trixie" root sh -euc '
  apt-get update -qq
  apt-get -o APT::Sandbox::User=root download -qq nvidia-cuda-toolkit nvidia-cuda-dev libnvvm4 libcublas12 \
    libcublaslt12 libcudart12 libcu++-dev
'
root=$workspace/bookworm
make_root bookworm "$root"
mkdir -p "$root/src/build/package" "$root/opt/cudnn"
git archive HEAD | tar -x -C "$root/src"
cp "$package" "$root/src/build/package/"
in_root "$root" root /src/scripts/setup.sh
for file in "$workspace"/trixie/root/*.deb; do dpkg -x "$file" "$root"; done
"$(scripts/python_env.sh --release)" -m pip download -q --no-deps --disable-pip-version-check \
  -d "$workspace" 'nvidia-cudnn-cu12 == 9.10.2.21'
python3 -m zipfile -e "$workspace"/nvidia_cudnn_cu12-*.whl "$root/opt/cudnn"
in_root "$root" root env CUDACXX=/usr/bin/nvcc MUSTER_CUDNN_INCLUDE_DIR=/opt/cudnn/nvidia/cudnn/include \
  /src/scripts/package_cuda.sh "build/package/${package##*/}"
mkdir -p build/package
cp "$root"/src/build/package/libmuster_cuda-*.tar.gz build/package/
