#!/usr/bin/env bash
# Makes build/package/muster-VERSION-linux-x86_64.tar.gz, which an ordinary user can unpack and run on RHEL
# 9, Debian 12, Ubuntu 22.04 or anything newer, and checks it:
#
#   scripts/package.sh                     # builds HEAD in a new Debian 12; needs root and some minutes
#   scripts/package.sh --here              # builds this tree on this machine, which should be Debian 12
#   scripts/package.sh --check FILE        # only checks a package; needs root
#
# If nvcc is installed, also makes the package of the CUDA backend (scripts/package_cuda.sh).
#
# The check trains with the package as an ordinary user in a bare Debian 12 and a bare Debian 13, which must
# give the same bits. `--here` does not check, because it may not run as root.
set -euo pipefail
cd "$(dirname "$0")/.."

# check_in FILE RELEASE: trains in a bare Debian, and sets $weights to the hash of the result.
check_in() {
  local file=$1 release=$2 root=$workspace/bare-$2 log=$workspace/bare-$2.log
  make_root "$release" "$root"
  add_user "$root" user
  cp "$file" "$root/home/user/package.tar.gz"
  in_root "$root" user sh -euc '
    tar -xzf package.tar.gz
    cd muster-*
    bin/muster launch configs/smoke.txtpb
    bin/muster bench --size 4KB >/dev/null  # the other programs
    cd /tmp && ~/muster-*/bin/muster inspect configs/cifar10.txtpb >/dev/null  # from any folder
  ' >"$log" 2>&1 || { echo "$0: in a bare $release, the package failed:" >&2 && cat "$log" >&2 && return 1; }
  weights=$(awk '$1 == "weights" && $2 == "hash" { print $3 }' "$log")
  echo "As an ordinary user in a bare $release: $(grep Completed "$log"), weights hash $weights"
}

# Checks that the packaged programs end with one line on a processor without AVX2. Needs QEMU.
check_old_processor() {
  local unpacked=$workspace/unpacked code=0
  mkdir "$unpacked"
  tar -C "$unpacked" -xzf "$1"
  tests/cli/old_processor_test.sh x86-64-v3 '' "$unpacked"/muster-*/bin/muster* || code=$?
  case $code in
    0) echo "On a processor without AVX2 every program ends with one line." ;;
    77) ;; # skipped; it has printed the reason
    *) return 1 ;;
  esac
}

check() {
  local weights bookworm
  check_old_processor "$1"
  check_in "$1" bookworm
  bookworm=$weights
  check_in "$1" trixie
  if [[ -z $weights || $weights != "$bookworm" ]]; then
    echo "$0: expected the same bits on Debian 12 and 13, found '$bookworm' and '$weights'" >&2
    return 1
  fi
  echo "$1: trains on Debian 12 and 13 with the same bits."
}

case ${1:-} in
  --here)
    scripts/package_here.sh
    exec scripts/package_cuda.sh
    ;;
  --check)
    [[ -f ${2:-} ]] || { echo "$0: --check: expected a package, found '${2:-}'" >&2; exit 2; }
    ;;
  '') ;;
  *)
    echo "$0: expected --here, --check FILE or nothing, found '$1'" >&2
    exit 2
    ;;
esac

. scripts/debian_root.sh
new_workspace
package=${2:-}
if [[ -z $package ]]; then
  make_root bookworm "$workspace/build"
  mkdir -p "$workspace/build/src" build/package
  git archive HEAD | tar -x -C "$workspace/build/src"
  in_root "$workspace/build" root /src/scripts/package.sh --here
  package=$(find "$workspace/build/src/build/package" -maxdepth 1 -name 'muster-*.tar.gz')
  cp "$package" build/package/
  package=build/package/${package##*/}
fi
check "$package"
[[ -n ${2:-} ]] || scripts/package_cuda.sh "$package"
