#!/usr/bin/env bash
# Does the README's two commands work on a machine as it comes? Makes a minimal Debian in a temporary
# directory, unpacks the last commit there and runs, without any compiler cache,
#   scripts/demo.sh and scripts/test.sh as root, then
#   scripts/demo.sh as an ordinary user, in a tree of that user's own, with the packages there.
# Prints what each took, and how much room the root took below $TMPDIR.
#
#   scripts/fresh.sh [bookworm|trixie] [muster launch options for the demo, for example --steps 40]
#
# Needs Debian, root, debootstrap and a network with apt's mirror. Everything runs in namespaces of
# its own: what is mounted there is mounted nowhere else, and goes with the last process. They and the
# directory go also when the script is interrupted; killed with SIGKILL, it leaves the directory.
# shellcheck disable=SC2317  # functions that `step` and `trap` call look unreachable
set -euo pipefail

die() {
  echo "fresh.sh: $*" >&2
  exit 1
}

# step TITLE COMMAND ...: runs it, with the time since it began before each of its lines.
step() {
  local title=$1 begin=$SECONDS status=0
  shift
  echo "== $title"
  "$@" </dev/null 2>&1 | while IFS= read -r line; do
    printf '%3d:%02d  %s\n' $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60)) "$line"
  done || status=$?
  ((status == 0)) || die "$title: exit code $status"
  took+=("$(printf '%3d:%02d  %s' $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60)) "$title")")
}

# debootstrap without its line for each package.
make_root() {
  debootstrap --variant=minbase "$@" |
    sed -u -E "/^I: (Retrieving|Validating|Extracting|Unpacking|Configuring) /d"
}

# The mirror that apt takes this release's packages from.
mirror() {
  local id codename
  # shellcheck source=/dev/null
  id=$(. /etc/os-release && echo "${ID:-}") codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  [[ $id == debian ]] || die "this machine is no Debian: its apt knows no mirror of Debian"
  apt-get indextargets --format "\$(REPO_URI)" 'Created-By: Packages' "Release: $codename" \
    'Component: main' | sed -n 1p
}

# What apt needs to get through to the mirror, from this machine's configuration: proxies,
# certificates, how old an index may be.
copy_network() {
  local root=$1 bundle=/etc/ssl/certs/ca-certificates.crt
  cp --dereference /etc/resolv.conf "$root/etc/resolv.conf"
  apt-config dump | grep -E '^Acquire::(http|https|Check-[A-Za-z-]*|Retries)(::[^"]*)? ' \
    >"$root/etc/apt/apt.conf.d/99machine" || true
  if grep -q '^deb https:' "$root/etc/apt/sources.list" && [[ -f $bundle ]]; then
    cp "$bundle" "$root/etc/apt/machine-certificates.crt"
    echo 'Acquire::https::CaInfo "/etc/apt/machine-certificates.crt";' \
      >>"$root/etc/apt/apt.conf.d/99machine"
  fi
}

# What an installed machine has and a minimal root has not: the kernel's file systems, devices with
# pseudo-terminals and shared memory, the name localhost. Nothing of the machine's own /dev but the
# plain devices.
furnish() {
  local root=$1 device
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
  done
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s /proc/self/fd/0 "$root/dev/stdin"
  ln -s /proc/self/fd/1 "$root/dev/stdout"
  ln -s /proc/self/fd/2 "$root/dev/stderr"
  printf '127.0.0.1 localhost %s\n::1 localhost ip6-localhost\n' "$(hostname)" >"$root/etc/hosts"
}

# as USER COMMAND ...: in the root, in that user's home, with the environment of a login; of this
# machine's, only where its proxies are.
as() {
  local user=$1 home=/home/$1 variable environment=()
  shift
  [[ $user == root ]] && home=/root
  for variable in http_proxy https_proxy no_proxy; do
    [[ -z ${!variable:-} ]] || environment+=("$variable=${!variable}")
  done
  chroot --userspec="$user:$user" "$root" /usr/bin/env -i "HOME=$home" "USER=$user" TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${environment[@]}" \
    sh -c 'cd ~/muster && exec "$@"' sh "$@"
}

# Runs as the first process of its namespaces.
inside() {
  local release=$1 root=$2 archive=$3 took=()
  shift 3
  mount --make-rprivate /
  mount -t proc proc /proc

  step "debootstrap --variant=minbase $release" make_root "$release" "$root" "$(mirror)"
  copy_network "$root"
  furnish "$root"
  chroot "$root" useradd --create-home --shell /bin/bash someone
  for home in root home/someone; do
    mkdir "$root/$home/muster"
    tar -x -C "$root/$home/muster" -f "$archive" --no-same-owner
  done
  chroot "$root" chown -R someone:someone /home/someone/muster

  step "scripts/demo.sh${*:+ $*} (root; installs packages, builds, trains)" as root scripts/demo.sh "$@"
  step "scripts/test.sh (root; builds and runs the tests)" as root scripts/test.sh
  step "scripts/demo.sh${*:+ $*} (ordinary user; builds, trains)" as someone scripts/demo.sh "$@"

  echo "== Debian $(<"$root/etc/debian_version") ($release), $(nproc) x $(processor)"
  # shellcheck disable=SC2016  # dpkg-query's own variables
  chroot "$root" dpkg-query -W -f='   ${Package} ${Version}\n' g++ cmake libdnnl-dev libprotobuf-dev
  echo "   size of the root, with both trees' builds: $(du -shx "$root" | cut -f1)"
  printf '%s\n' "${took[@]}"
}

processor() { sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | sed -n 1p; }

if [[ ${1:-} == --inside ]]; then
  shift
  inside "$@"
  exit
fi

cd "$(dirname "$0")/.."
release=bookworm
case ${1:-} in
  bookworm | trixie) release=$1 && shift ;;
  -h | --help) sed -n '2,/^[^#]/{/shellcheck/!s/^# \{0,1\}//p}' "$0" && exit ;;
  "" | -*) ;;
  *) die "unknown release '$1'; expected bookworm or trixie" ;;
esac
((EUID == 0)) || die "only root can make a root file system; run it with sudo"
for tool in debootstrap unshare setpriv git; do
  command -v "$tool" >/dev/null || die "$tool is missing; apt-get install debootstrap util-linux git"
done
[[ -n $(mirror) ]] || die "this machine's apt has no mirror with Debian's component main"
[[ -z $(git status --porcelain) ]] || echo "fresh.sh: only what is committed is tried: $(git log -1 --format=%h)"

directory=$(mktemp -d "${TMPDIR:-/tmp}/muster-fresh-XXXXXX")
namespaces=
clean_up() {
  trap - EXIT INT TERM HUP
  local first
  if [[ -n $namespaces ]] && kill -0 "$namespaces" 2>/dev/null; then
    # The namespace's first process; all others go with it, and unshare ends after the last.
    for first in $(<"/proc/$namespaces/task/$namespaces/children"); do kill -KILL "$first"; done
    wait "$namespaces" 2>/dev/null || true
  fi
  rm -rf --one-file-system "$directory"  # nothing is mounted there, seen from here
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

umask 022
mkdir "$directory/root"
git archive --output="$directory/muster.tar" HEAD
# In a process group of its own, so that what runs there does not ignore Ctrl-C; SIGKILL to this
# script reaches it through setpriv.
set -m
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child \
  "$PWD/scripts/fresh.sh" --inside "$release" "$directory/root" "$directory/muster.tar" "$@" \
  </dev/null &
namespaces=$!
status=0
wait "$namespaces" || status=$?
exit "$status"
