# shellcheck shell=bash
# Makes minimal Debian systems in a folder, to test things as on a fresh machine. A script with
# `set -euo pipefail` sources this as root:
#
#   . scripts/debian_root.sh
#   new_workspace                       # $workspace: a temporary folder, removed at the end
#   make_root bookworm "$workspace/a"   # debootstrap; apt configured as on this machine
#   in_root "$workspace/a" root apt-get install -y -qq make
#   add_user "$workspace/a" user
#   in_root "$workspace/a" user make -C /tmp/somewhere
#
# Packages come from the mirror of this machine's apt, with its keys and proxy. Commands in a root have their
# own mounts and processes, but this machine's network and kernel, whose settings they cannot change
# (installing systemd-coredump would). When the script ends, even by Ctrl-C or SIGTERM, they are killed, and
# nothing stays mounted. After SIGKILL, only the temporary folder is left.

workspace=${workspace:-}
running=  # all processes in a root end with this one

new_workspace() {
  if ((EUID != 0)); then
    echo "$0: run this as root, which is needed to make a Debian system in a folder; this is user $EUID." >&2
    exit 1
  fi
  local tool
  for tool in debootstrap unshare setpriv; do
    if ! command -v "$tool" >/dev/null; then
      echo "$0: $tool is missing; install the Debian packages debootstrap and util-linux." >&2
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
  # Mounts disappear with the last process that sees them, which may take a moment to end.
  rm -rf --one-file-system "$workspace" 2>/dev/null ||
    { sleep 1; rm -rf --one-file-system "$workspace"; }
}

# Runs COMMAND with its own mounts and processes. Runs it in the background, because bash handles no signal
# while it waits for a program in the foreground; there, Ctrl-C would be ignored.
_contained() {
  local status=0
  env --default-signal=INT,QUIT setpriv --pdeathsig KILL \
    unshare --mount --pid --fork --kill-child "$@" <&0 &
  running=$!
  wait "$running" || status=$?
  running=
  return "$status"
}

# _apt_source LABEL: the address from which this machine's apt gets Debian packages with that label. Empty if
# there is none.
_apt_source() {
  # shellcheck disable=SC2016  # apt-get expands these
  apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(CREATED_BY)|$(REPO_URI)' |
    awk -F'|' -v label="$1" '$1 == "Debian" && $2 == label && $3 == "main" && $4 == "Packages" {
      print $5; exit }'
}

# make_root RELEASE FOLDER: makes a Debian system of debootstrap's variant minbase. Later ones of the same
# release are fresh copies of the first.
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
    echo "$0: apt on this machine has no Debian mirror; add one to its sources and run 'apt-get update'." >&2
    return 1
  fi
  # debootstrap does not read apt's settings.
  local proxy log="$workspace/debootstrap.log"
  proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy)
  echo "Debian $release from $mirror ..."
  if ! http_proxy=${http_proxy:-$proxy} _contained debootstrap --variant=minbase \
    --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
    "$release" "$root" "$mirror" >"$log" 2>&1; then
    echo "$0: debootstrap of $release from $mirror failed. The end of its output:" >&2
    tail -n 5 "$log" >&2
    return 1
  fi
  # The mirror that debootstrap used, plus updates of the release.
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

# in_root FOLDER USER COMMAND ...: runs the command as that user, in the user's home folder, with only the
# environment variables of a login.
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
    # Bind-mount the root, so that tests in it can make private mounts.
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
