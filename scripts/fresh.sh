#!/usr/bin/env bash
# Tests the README's two commands on a fresh machine. Makes a minimal Debian in a temporary directory, unpacks
# the last commit there and runs, without a compiler cache,
#   scripts/demo.sh and scripts/test.sh as root, then
#   scripts/demo.sh as an ordinary user, in another tree, with the packages installed.
# Prints the time of each. Takes 45 minutes on 2 cores, and 5 GB below $TMPDIR.
#
#   scripts/fresh.sh [bookworm|trixie] [muster launch options for the demo, for example --steps 40]
#
# Needs Debian, root, debootstrap and a network with apt's mirror. For interruptions see
# scripts/debian_root.sh.
set -euo pipefail

die() {
  echo "fresh.sh: $*" >&2
  exit 1
}

# Copies lines, each with the time since the start in front.
stamp() {
  local begin=$SECONDS line
  while IFS= read -r line; do
    printf '%3d:%02d  %s\n' $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60)) "$line"
  done
}

# step TITLE COMMAND ...: runs the command in this shell, which must know what to kill when interrupted.
took=()
step() {
  local title=$1 begin=$SECONDS status=0 out stamper
  shift
  echo "== $title"
  exec {out}> >(stamp)
  stamper=$!
  "$@" </dev/null >&"$out" 2>&1 || status=$?
  exec {out}>&-
  wait "$stamper" || true
  ((status == 0)) || die "$title: exit code $status"
  took+=("$(printf '%3d:%02d  %s' $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60)) "$title")")
}

# as USER COMMAND ...: runs the command in the tree of that user.
as() {
  local user=$1
  shift
  in_root "$root" "$user" sh -c 'cd ~/muster && exec "$@"' sh "$@"
}

cd "$(dirname "$0")/.."
release=bookworm
case ${1:-} in
  bookworm | trixie) release=$1 && shift ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;;
  "" | -*) ;;
  *) die "unknown release '$1'; expected bookworm or trixie" ;;
esac
# shellcheck source=scripts/debian_root.sh
. scripts/debian_root.sh
[[ -z $(git status --porcelain) ]] || echo "fresh.sh: testing only committed changes: $(git log -1 --format=%h)"

umask 022
new_workspace
root=$workspace/root
step "debootstrap $release" make_root "$release" "$root"
add_user "$root" someone
git archive --output="$root/tmp/muster.tar" HEAD
for user in root someone; do
  in_root "$root" "$user" sh -c 'mkdir muster && tar -x -C muster -f /tmp/muster.tar'
done

step "scripts/demo.sh${*:+ $*} (root; installs packages, builds, trains)" as root scripts/demo.sh "$@"
step "scripts/test.sh (root; builds and runs the tests)" as root scripts/test.sh
step "scripts/demo.sh${*:+ $*} (ordinary user; builds, trains)" as someone scripts/demo.sh "$@"

processor=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | sed -n 1p)
echo "== Debian $(<"$root/etc/debian_version") ($release), $(nproc) x $processor"
# shellcheck disable=SC2016  # dpkg-query expands these
chroot "$root" dpkg-query -W -f='   ${Package} ${Version}\n' g++ cmake libdnnl-dev libprotobuf-dev
echo "   size of the root, with the builds of both trees: $(du -shx "$root" | cut -f1)"
printf '%s\n' "${took[@]}"
