#!/usr/bin/env bash
# Installs the Debian (or Ubuntu) packages that are needed to build Muster, if any is missing.
# The README says what each is for. Needs root or sudo only if something is missing.
# With --checks, installs instead the tools of scripts/check.sh, as far as this release has them, and tools
# without which tests are skipped.
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config          # tools
  libzmq3-dev cppzmq-dev                                # transport
  protobuf-compiler libprotobuf-dev                     # config and messages
  libdnnl-dev ocl-icd-opencl-dev                        # layers on the CPU; its CMake files need OpenCL
  libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev
  libcurl4-openssl-dev libssl-dev libarchive-dev zlib1g-dev   # muster data get, MNIST
  libminizip-dev                                        # .npz: NPZ data, muster export
  ca-certificates                                       # https, for muster data get
  libxxhash-dev
  libjpeg-dev libspng-dev                               # photos; libjpeg-dev is libjpeg-turbo
  libgtest-dev libgmock-dev                             # tests
  libboost-context-dev                                  # tests on the software GPU
)

if [[ ${1:-} == --checks ]]; then
  packages=(git clang-tidy shellcheck
            qemu-user      # emulates a processor without AVX2
            ccache mold    # faster builds (cmake/CompilerCache.cmake)
            python3-numpy python3-venv  # tests of the Python package (scripts/python_env.sh)
            openmpi-bin mpich  # ranks from mpirun
            iproute2 slurmctld slurmd slurm-client slurm-wlm-basic-plugins  # jobs of Slurm
            openssh-server)  # jobs over ssh
  # Other versions format differently. If the release lacks this one, scripts/check.sh reports it.
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

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: missing packages: ${missing[*]}; run this as root, or install sudo." >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing ${#missing[@]} Debian packages and their dependencies:"
fold -s -w 76 <<<"${missing[*]}" | sed 's/^/  /'
"${as_root[@]}" apt-get update -qq
install=(env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get install --no-install-recommends)
# Shows sizes in advance. --assume-no ends with 1.
plan=$("${as_root[@]}" "${install[@]}" --assume-no "${missing[@]}" 2>&1) || true
grep -E '^(.* newly installed|Need to get|After this operation)' <<<"$plan" | sed 's/^/  /' || true
echo "This takes between half a minute and a few minutes."
# Shows progress from apt's status lines, and saves its other output in case it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "${as_root[@]}" "${install[@]}" -y -o APT::Status-Fd=1 "${missing[@]}" 2>&1 |
  awk -F: -v log_file="$log" '
    !/^(dlstatus|pmstatus):/ { print >log_file; next }
    {
      progress = sprintf("  %s: %d %%", $1 == "dlstatus" ? "downloading" : "installing", int($3 / 10) * 10)
      if (progress != said) print progress
      said = progress
      fflush()
    }'; then
  echo "setup.sh: apt-get failed. The end of its output:" >&2
  printf '%s\n' "$plan" | sed -n '/^E: /p' >&2
  tail -n 15 "$log" >&2
  exit 1
fi
