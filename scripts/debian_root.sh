# shellcheck shell=bash
# Minimal Debian systems in a folder, to try things as they are on a fresh machine. To be sourced, as
# root, by a script of `set -euo pipefail`:
#
#   . scripts/debian_root.sh
#   new_workspace                       # $workspace: a temporary folder, removed at the end
#   make_root bookworm "$workspace/a"   # debootstrap; apt in it as on this machine
#   in_root "$workspace/a" root apt-get install -y -qq make
#   add_user "$workspace/a" user
#   in_root "$workspace/a" user make -C /tmp/somewhere
#
# Packages come from the mirror, with the keys and the proxy, that apt on this machine is configured
# for. What runs in a root has its own mounts and processes, but this machine's network and kernel,
# whose settings it cannot change (systemd-coredump's installation would): when the script ends, also
# by Ctrl-C or SIGTERM, all of it is killed and nothing stays mounted. After SIGKILL the temporary
# folder is left, and nothing else.

workspace=${workspace:-}
running=  # the process that the rest of what runs in a root lives and dies with

new_workspace() {
  if ((EUID != 0)); then
    echo "$0: expected to be run as root, to make a Debian system in a folder; this is user $EUID." >&2
    exit 1
  fi
  local tool
  for tool in debootstrap unshare setpriv; do
    if ! command -v "$tool" >/dev/null; then
      echo "$0: $tool is missing; expected the Debian packages debootstrap and util-linux." >&2
      exit 1
    fi
  done
  workspace=$(mktemp -d "${TMPDIR:-/tmp}/muster-root.XXXXXX")
  chmod 755 "$workspace"
  trap end_workspace EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
}

end_workspace() {
  if [[ -n $running ]]; then
    kill -KILL "$running" 2>/dev/null || true
    wait "$running" 2>/dev/null || true
  fi
  # Mounts die with the last process that sees them, which SIGKILL may take a moment to end.
  rm -rf --one-file-system "$workspace" 2>/dev/null ||
    { sleep 1; rm -rf --one-file-system "$workspace"; }
}

# Runs COMMAND with mounts and processes of its own. In the background, since bash does not see to a
# signal while it waits for a program in the foreground; there it would ignore Ctrl-C.
_contained() {
  local status=0
  env --default-signal=INT,QUIT setpriv --pdeathsig KILL \
    unshare --mount --pid --fork --kill-child "$@" <&0 &
  running=$!
  wait "$running" || status=$?
  running=
  return "$status"
}

# _apt_source LABEL: the address that this machine's apt has Debian's packages of that label from.
# Empty if there is none.
_apt_source() {
  # shellcheck disable=SC2016  # these are apt-get's variables
  apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(CREATED_BY)|$(REPO_URI)' |
    awk -F'|' -v label="$1" '$1 == "Debian" && $2 == label && $3 == "main" && $4 == "Packages" {
      print $5; exit }'
}

# make_root RELEASE FOLDER: a Debian system with what debootstrap calls minbase. The second one of a
# release is a copy of what the first was at first.
make_root() {
  local release=$1 root=$2
  [[ -d $workspace/base-$release ]] || _make_base "$release" "$workspace/base-$release" || return
  cp -a "$workspace/base-$release" "$root"
}

_make_base() {
  local release=$1 root=$2 mirror security
  mirror=$(_apt_source Debian)
  security=$(_apt_source Debian-Security)
  if [[ -z $mirror ]]; then
    echo "$0: apt on this machine knows no Debian mirror; expected one in its sources, and" \
      "'apt-get update' run." >&2
    return 1
  fi
  # debootstrap does not read apt's settings.
  local proxy log="$workspace/debootstrap.log"
  proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy)
  echo "Debian $release from $mirror ..."
  if ! http_proxy=${http_proxy:-$proxy} _contained debootstrap --variant=minbase \
    --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
    "$release" "$root" "$mirror" >"$log" 2>&1; then
    echo "$0: debootstrap of $release from $mirror failed. The end of what it said:" >&2
    tail -n 5 "$log" >&2
    return 1
  fi
  # The mirror of what debootstrap installed, with the release's corrections.
  {
    echo "deb $mirror $release main"
    echo "deb $mirror $release-updates main"
    [[ -z $security ]] || echo "deb $security $release-security main"
  } >"$root/etc/apt/sources.list" || return
  apt-config dump | grep -E '^Acquire::(http|https|Retries)(::[^"]*)? ' \
    >"$root/etc/apt/apt.conf.d/90host" || true
  local bundle=/etc/ssl/certs/ca-certificates.crt
  if [[ $mirror == https:* && -f $bundle ]]; then
    cp "$bundle" "$root/etc/apt/host-certificates.crt" || return
    echo 'Acquire::https::CaInfo "/etc/apt/host-certificates.crt";' \
      >>"$root/etc/apt/apt.conf.d/90host"
  fi
  local file
  for file in resolv.conf hosts; do cp -L "/etc/$file" "$root/etc/$file" || return; done
  in_root "$root" root apt-get update -qq
}

# in_root FOLDER USER COMMAND ...: as that user, in the user's home folder, with a login's few
# environment variables.
in_root() {
  local root=$1 user=$2 home variable proxies=()
  shift 2
  for variable in http_proxy https_proxy no_proxy; do
    [[ -z ${!variable:-} ]] || proxies+=("$variable=${!variable}")
  done
  home=$(awk -F: -v user="$user" '$1 == user { print $6 }' "$root/etc/passwd")
  # shellcheck disable=SC2016  # expanded by the inner shells
  _contained sh -c '
    root=$1 user=$2 home=$3; shift 3
    # A mount of its own, so that tests in it can make private mounts.
    mount --bind "$root" "$root" && mount -t proc proc "$root/proc" && mount -t sysfs -o ro sys "$root/sys" &&
      mount --bind "$root/proc/sys" "$root/proc/sys" &&
      mount -o remount,bind,ro "$root/proc/sys" &&
      mount -t devpts -o newinstance,ptmxmode=0666 pts "$root/dev/pts" &&
      mount -t tmpfs -o mode=1777 shm "$root/dev/shm" || exit 1
    exec chroot --userspec="$user" "$root" env -i HOME="$home" USER="$user" LANG=C.UTF-8 \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      DEBIAN_FRONTEND=noninteractive "$@"
  ' sh "$root" "$user" "$home" "${proxies[@]}" sh -c 'cd "$HOME" && exec "$@"' sh "$@"
}

# add_user FOLDER NAME
add_user() { in_root "$1" root useradd --create-home --shell /bin/bash "$2"; }
