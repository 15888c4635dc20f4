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
  libminizip-dev                                        # .npz: NPZ data, muster export
  ca-certificates                                       # https, for muster data get
  libxxhash-dev
  libjpeg-dev libspng-dev                               # photos; libjpeg-dev is libjpeg-turbo
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

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: these packages are missing, and neither root nor sudo is there to install them." >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing ${#missing[@]} Debian packages, and those that they need:"
fold -s -w 76 <<<"${missing[*]}" | sed 's/^/  /'
"${as_root[@]}" apt-get update -qq
install=(env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get install --no-install-recommends)
# What it will take. --assume-no ends with 1.
plan=$("${as_root[@]}" "${install[@]}" --assume-no "${missing[@]}" 2>&1) || true
grep -E '^(.* newly installed|Need to get|After this operation)' <<<"$plan" | sed 's/^/  /' || true
echo "It takes from half a minute to a few minutes."
# apt's own lines are kept for when it fails. Its status lines say how far it is.
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
  echo "setup.sh: apt-get failed. The end of what it said:" >&2
  printf '%s\n' "$plan" | sed -n '/^E: /p' >&2
  tail -n 15 "$log" >&2
  exit 1
fi
