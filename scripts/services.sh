#!/usr/bin/env bash
# Do the units of docs/services do what docs/SERVICES.md says, with a real systemd? Makes a minimal Debian
# with a kernel in a temporary directory, boots it in a virtual machine, sets Muster up there as that page
# says, and kills, stops, starves and reboots what runs. Ends with a table of what was proven.
#
#   scripts/services.sh [bookworm|trixie] [--emulate] [PACKAGE.tar.gz]
#
# PACKAGE is one of scripts/package.sh; without it, one is made of this tree, which takes Debian 12.
# Needs root, Debian's debootstrap and qemu-system-x86, a network with apt's mirror, and 4 GB below
# $TMPDIR. With KVM it takes 10 minutes. Without it, with one that cannot run Debian's kernel, or with
# --emulate, the processor is emulated, which takes an hour. What scripts/debian_root.sh says of
# interruptions holds here.
#
# scripts/services_guest.sh is what runs in the machine.
set -euo pipefail

die() {
  echo "services.sh: $*" >&2
  exit 1
}

# The Debian that is booted: what the units need, and what scripts/services_guest.sh looks with.
make_machine() {
  local root=$1 programs
  make_root "$release" "$root"
  in_root "$root" root apt-get install -y -qq --no-install-recommends \
    systemd-sysv systemd-coredump udev dbus iproute2 procps kmod strace \
    linux-image-cloud-amd64 initramfs-tools >"$workspace/apt.log" 2>&1 ||
    { tail -n 20 "$workspace/apt.log" >&2 && return 1; }
  # As SERVICES.md says.
  tar --no-same-owner -C "$root/opt" -xzf "$package"
  programs=$(cd "$root" && echo opt/muster-*/bin)
  ln -s "/$programs/muster" "$root/usr/local/bin/muster"
  mkdir -p "$root/var/log/journal" "$root/root/units"
  cp docs/services/*.service "$root/root/units/"
  cp scripts/services_guest.sh "$root/root/"
  echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
  echo muster-services >"$root/etc/hostname"
  : >"$root/etc/machine-id" # systemd makes one
  cat >"$root/etc/systemd/system/proof-network.service" <<'END'
[Unit]
DefaultDependencies=no
After=systemd-remount-fs.service
Before=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash /root/services_guest.sh network
[Install]
WantedBy=network-online.target
END
  cat >"$root/etc/systemd/system/proof.service" <<'END'
[Unit]
After=multi-user.target
[Service]
Type=exec
ExecStart=/bin/bash -c 'exec bash -x /root/services_guest.sh >>/dev/ttyS2 2>&1'
[Install]
WantedBy=graphical.target
END
  in_root "$root" root systemctl --quiet enable proof.service proof-network.service
}

# boot ACCELERATOR PROCESSOR SLOWNESS: until the machine has powered itself off. What it reports is shown
# as it comes. Fails if it does not end by itself; with 2 if it did not even begin.
boot() {
  local accelerator=$1 processor=$2 slowness=$3 shown=0 lines begin=$SECONDS
  cp --sparse=always "$workspace/disk" "$workspace/disk-used"
  : >"$workspace/report"
  setpriv --pdeathsig KILL qemu-system-x86_64 -accel "$accelerator" -cpu "$processor" -smp 2 -m 3G \
    -no-user-config -nodefaults -display none \
    -kernel "$(echo "$root"/boot/vmlinuz-*)" -initrd "$(echo "$root"/boot/initrd.img-*)" \
    -append "root=/dev/vda rw console=ttyS0 quiet mitigations=off panic=1 services_slow=$slowness" \
    -drive "file=$workspace/disk-used,format=raw,if=virtio,cache=unsafe" \
    -serial "file:$workspace/console" -serial "file:$workspace/report" -serial "file:$workspace/trace" \
    </dev/null >"$workspace/qemu.log" 2>&1 &
  running=$!
  while kill -0 "$running" 2>/dev/null; do
    sleep 1
    lines=$(wc -l <"$workspace/report")
    if ((lines > shown)); then
      sed -n "$((shown + 1)),${lines}s/\r\$//p" "$workspace/report" | grep -v '^end'
      shown=$lines
    fi
    if ((shown == 0 && SECONDS - begin > 60 * slowness)) ||
      grep -q 'internal error' "$workspace/qemu.log" || ((SECONDS - begin > 1800 * slowness)); then
      kill "$running" 2>/dev/null || true
    fi
  done
  wait "$running" 2>/dev/null || true
  running=
  ((shown > 0)) || return 2
  grep -q '^end' "$workspace/report"
}

cd "$(dirname "$0")/.."
release=bookworm package='' emulate=''
for argument; do
  case $argument in
    bookworm | trixie) release=$argument ;;
    --emulate) emulate=yes ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;;
    *.tar.gz) package=$argument ;;
    *) die "unknown argument '$argument'; expected bookworm, trixie, --emulate or a PACKAGE.tar.gz" ;;
  esac
done
[[ -z $package || -f $package ]] || die "no package at $package; scripts/package.sh --here makes one"
for tool in qemu-system-x86_64 mkfs.ext4; do
  command -v $tool >/dev/null || die "$tool is missing; expected the Debian packages qemu-system-x86 and e2fsprogs"
done
# shellcheck source=scripts/debian_root.sh
. scripts/debian_root.sh

umask 022
new_workspace
if [[ -z $package ]]; then
  scripts/package_here.sh >"$workspace/package.log" 2>&1 || { tail -n 20 "$workspace/package.log" >&2 && exit 1; }
  package=$(find build/package -maxdepth 1 -name 'muster-*.tar.gz')
fi
root=$workspace/root
make_machine "$root"
truncate -s "$(($(du -sm "$root" | cut -f1) + 1500))M" "$workspace/disk"
mkfs.ext4 -q -F -d "$root" "$workspace/disk"

status=2
if [[ -z $emulate && -w /dev/kvm ]]; then
  echo "Booting with KVM ..."
  status=0 && boot kvm host 1 || status=$?
  ((status != 2)) || echo "KVM here does not run Debian's kernel."
fi
if ((status == 2)); then
  echo "Booting with an emulated processor ..."
  status=0 && boot tcg,thread=multi max 5 || status=$?
fi

count() { grep -c "^$1 " "$workspace/report" || true; }
echo "== Debian $(<"$root/etc/debian_version") ($release)," \
  "$(chroot "$root" systemctl --version | head -n 1)," \
  "kernel $(basename "$(echo "$root"/boot/vmlinuz-*)" | cut -d- -f2-): $(count ok) proven, $(count WRONG) wrong"
if ((status != 0)) || grep -q '^WRONG' "$workspace/report"; then
  grep '^WRONG' "$workspace/report" || true
  kept=$(mktemp -d "${TMPDIR:-/tmp}/muster-services.XXXXXX")
  cp "$workspace"/{console,report,trace,qemu.log} "$kept/"
  ((status == 0)) || echo "The machine did not get to its end."
  die "what it said is in $kept"
fi
