#!/usr/bin/env bash
# Installs the Debian (or Ubuntu) packages that Muster is built on, if any is missing.
# The README says what each is for. Needs root or sudo only when something is missing.
# --checks: instead, the tools of scripts/check.sh, as far as this release has them, and what a test is
# skipped without.
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config          # tools
  libzmq3-dev cppzmq-dev                                # transport
  protobuf-compiler libprotobuf-dev                     # config and messages
  libdnnl-dev ocl-icd-opencl-dev                        # layers on the CPU; its CMake files want OpenCL's
  libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev
  libcurl4-openssl-dev libssl-dev libarchive-dev zlib1g-dev   # muster data get, MNIST
  libminizip-dev                                        # muster export: .npz
  ca-certificates                                       # https, for muster data get
  libxxhash-dev
  libfreetype-dev fonts-dejavu-core                     # muster plot
  libgtest-dev libgmock-dev                             # tests
  libboost-context-dev                                  # tests on the software GPU
)

if [[ ${1:-} == --checks ]]; then
  packages=(git clang-tidy shellcheck
            qemu-user)  # a processor without AVX2
  # Each version formats differently, and not every release has this one; scripts/check.sh says so.
  case $(sed -n "s/^VERSION_CODENAME=//p" /etc/os-release) in
    bookworm | jammy | noble) packages+=(clang-format-14) ;;
  esac
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ $status == "install ok installed" ]] || missing+=("$package")
done
((${#missing[@]} == 0)) && exit 0

echo "Installing: ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: these packages are missing, and neither root nor sudo is there to install them." >&2
    exit 1
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >/dev/null
