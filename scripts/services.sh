#!/usr/bin/env bash
# Tests that the units of docs/services do what docs/SERVICES.md says. Makes a minimal Debian in a temporary
# directory, boots its systemd in a container, sets up Muster there as described on that page, and kills and
# stops processes.
#
#   scripts/services.sh [bookworm|trixie] [PACKAGE.tar.gz]
#
# PACKAGE is made by scripts/package.sh; without it, this tree is packaged, which needs Debian 12.
# Needs root, the Debian packages debootstrap and systemd-container, a network with apt's mirror, and 1 GB below
# $TMPDIR. Takes about five minutes. For interruptions see scripts/debian_root.sh.
set -euo pipefail

server=muster-server.service
workers=(muster-worker@0.service muster-worker@1.service)
units=("$server" "${workers[@]}")
run=/var/lib/muster/run

# --- Outside ----------------------------------------------------------------------------------------

die() {
  echo "services.sh: $*" >&2
  exit 1
}

# Makes the Debian to boot. Its systemd starts "services.sh inside", and then powers off.
make_machine() {
  make_root "$release" "$root"
  in_root "$root" root apt-get install -y -qq --no-install-recommends systemd-sysv dbus iproute2 procps \
    >"$workspace/apt.log" 2>&1 || { tail -n 20 "$workspace/apt.log" >&2 && return 1; }
  # Install as described in SERVICES.md.
  tar --no-same-owner -C "$root/opt" -xzf "$package"
  ln -s "/$(cd "$root" && echo opt/muster-*/bin/muster)" "$root/usr/local/bin/muster"
  cp docs/services/*.service tests/cli/service_units_test.sh scripts/services.sh "$root/root/"
  echo muster-services >"$root/etc/hostname"
  : >"$root/etc/machine-id" # systemd generates one
  cat >"$root/etc/systemd/system/proof.service" <<'END_OF_UNIT'
[Unit]
After=multi-user.target
[Service]
ExecStart=/bin/bash -x /root/services.sh inside
StandardOutput=file:/root/report
StandardError=file:/root/trace
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
END_OF_UNIT
  in_root "$root" root systemctl --quiet enable proof.service
}

outside() {
  cd "$(dirname "$0")/.."
  release=bookworm package=''
  local argument
  for argument; do
    case $argument in
      bookworm | trixie) release=$argument ;;
      -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;;
      *.tar.gz) package=$argument ;;
      *) die "unknown argument '$argument'; expected bookworm, trixie or a PACKAGE.tar.gz" ;;
    esac
  done
  [[ -z $package || -f $package ]] || die "$package does not exist; make it with scripts/package.sh --here"
  command -v systemd-nspawn >/dev/null || die "systemd-nspawn is missing; install the Debian package systemd-container"
  # shellcheck source=scripts/debian_root.sh
  . scripts/debian_root.sh
  umask 022
  new_workspace
  if [[ -z $package ]]; then
    scripts/package_here.sh >"$workspace/package.log" 2>&1 || { tail -n 20 "$workspace/package.log" >&2 && exit 1; }
    package=$(find build/package -maxdepth 1 -name 'muster-*.tar.gz')
  fi
  root=$workspace/root
  make_machine
  # nspawn needs a tmpfs at /run. With its own one, it also works on machines without systemd.
  # shellcheck disable=SC2016  # expanded by the inner shell
  _contained sh -c '
    mount -t proc proc /proc && mount -t tmpfs -o mode=755 run /run || exit 1
    exec timeout 1200 systemd-nspawn --quiet --directory="$1" --register=no --keep-unit --private-network \
      --console=pipe --boot' sh "$root" </dev/null >"$workspace/console" 2>&1 || true
  cat "$root/root/report" || die "the container did not reach its tests: $(tail -n 20 "$workspace/console")"
  if ! grep -q '^end' "$root/root/report" || grep -q '^WRONG' "$root/root/report"; then
    tail -n 200 "$root/root/trace" >&2
    die "a test failed, or the container did not reach its end"
  fi
  echo "Debian $(<"$root/etc/debian_version"), $(chroot "$root" systemctl --version | head -n 1):" \
    "$(grep -c '^ok' "$root/root/report") checks passed, none failed"
}

# --- Inside -----------------------------------------------------------------------------------------

# expect WHAT EXPECTED GOT
expect() {
  local verdict=ok
  [[ $3 == "$2" ]] || verdict=WRONG
  printf '%-5s %s: %s%s\n' $verdict "$1" "$3" "$([[ $verdict == ok ]] || echo "; expected $2")"
}

# await SECONDS WHAT COMMAND ...: waits until the command succeeds; ends the test if it does not.
await() {
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if ((SECONDS >= until)); then
      echo "WRONG timed out waiting for: $what"
      journalctl --no-pager -n 100 >&2
      exit 1
    fi
    sleep 0.2
  done
}

property() { systemctl show --value -p "$2" "$1"; }
is_down() { [[ $(property "$1" ActiveState) =~ ^(inactive|failed)$ ]]; }
all_down() { is_down "$server" && is_down "${workers[0]}" && is_down "${workers[1]}"; }
# Prints the last exit code of a unit, its state, and how often systemd has restarted it.
ended() { echo "$(property "$1" ExecMainStatus) $(property "$1" ActiveState), restarts $(property "$1" NRestarts)"; }
server_pid() { pgrep -P "$(property "$server" MainPID)" -x muster-server; }
of_status() { muster top --json $run 2>/dev/null | sed -n "s/^ *\"$1\": \"\([0-9]*\)\",\{0,1\}\$/\1/p" | head -n 1; }
# Whether the current server has done a step. An earlier one may have left a status.
trains() { [[ $(of_status pid) == "$(server_pid)" ]] && (($(of_status step) > 0)); }
restarted() { (($(property "$1" NRestarts) > $2)) && trains; }
hash_of() { sed -n 's/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl" 2>/dev/null | tail -n 1; }

# write_job STEPS: writes a config of a tiny network on images in files. Flips make each step depend on random
# numbers.
write_job() {
  cat >/etc/muster/job.txtpb <<END_OF_JOB
run { seed: 1 steps: $1 global_batch: 32 slices: 4 log_every_steps: 20 }
data { format: CIFAR10 dir: "/srv/images" preprocess { crop_height: 12 crop_width: 12 flip: true standardize: true } }
model {
  name: "tiny"
  layer { name: "conv" conv2d { filters: 4 kernel: 3 padding: SAME } }
  layer { name: "relu" relu {} }
  layer { name: "pool" max_pool { kernel: 3 stride: 3 } }
  layer { name: "classes" dense { units: 10 } }
  layer { name: "loss" softmax_cross_entropy {} }
}
optimizer { type: MOMENTUM momentum: 0.9 }
learning_rate { base: 0.01 }
cluster { workers: 2 }
checkpoint { every_steps: $(($1 / 40 + 1)) }
evaluation { every_epochs: 0 }
END_OF_JOB
}

# Sets up Muster as described in SERVICES.md. The units use the address 10.0.0.5.
set_up() {
  ip address add 10.0.0.5/24 dev lo
  useradd --system --home-dir /var/lib/muster --shell /usr/sbin/nologin muster
  install -d -m 0755 /etc/muster
  install -d -o muster -g muster -m 0700 /var/lib/muster
  muster token /etc/muster/token
  chown muster: /etc/muster/token
  install -m 0644 /root/muster-*.service /etc/systemd/system/
  systemctl daemon-reload
  muster data synth /srv/images --train 2560 --test 500
}

# launch STEPS: runs the same job without the units, whose runs must end with the same weights.
launch() {
  write_job "$1"
  rm -rf /var/lib/muster/reference
  systemd-run --quiet --wait --pipe --collect --uid=muster --gid=muster -- \
    /usr/local/bin/muster launch /etc/muster/job.txtpb --run-dir /var/lib/muster/reference >&2
}

clean_up() {
  systemctl stop "${workers[@]}" "$server"
  systemctl reset-failed "muster-*" 2>/dev/null || true
  rm -rf $run
  write_job "$steps"
}

expect_whole() {
  local unit
  for unit in "${units[@]}"; do expect "$1: exit code of $unit" 0 "$(property "$unit" ExecMainStatus)"; done
  expect "$1: final weights" "$hash" "$(hash_of $run)"
}

# disturb WHAT UNIT COMMAND ...: runs the command. Then systemd must restart the unit, and the run must continue.
disturb() {
  local what=$1 unit=$2 count
  shift 2
  count=$(property "$unit" NRestarts)
  "$@"
  await 60 "the run continues after $what" restarted "$unit" "$count"
  expect "$what: restarts of $unit" $((count + 1)) "$(property "$unit" NRestarts)"
}

prove_runs() {
  clean_up
  systemctl start "${units[@]}"
  await 60 "the first steps of the run" trains
  await 200 "the end of the run" all_down
  expect_whole "undisturbed run"
  systemctl start "$server"
  await 30 "the end of a complete run" is_down "$server"
  expect "complete run, restarted" "0 inactive, restarts 0" "$(ended "$server")"

  clean_up
  systemctl start "${units[@]}"
  await 60 "the first steps of the run" trains
  disturb "SIGKILL of a worker" "${workers[1]}" systemctl kill -s KILL "${workers[1]}"
  disturb "SIGKILL of the whole server unit" "$server" systemctl kill -s KILL "$server"
  disturb "SIGSEGV of the server process" "$server" kill -s SEGV "$(server_pid)"
  expect "SIGSEGV of the server process: ends with 6" 1 \
    "$(journalctl --no-pager -o cat -u "$server" | grep -c 'code=exited, status=6/')"
  systemctl stop "$server"
  expect "systemctl stop" "143 inactive, restarts 2" "$(ended "$server")"
  systemctl start "$server"
  await 60 "the run continues after systemctl stop and start" trains
  await 300 "the end of the run" all_down
  expect_whole "run with three losses and a stop"
}

# stays_down WHAT CODE UNIT ...: starts all units. The given ones must end with the code, and not restart.
stays_down() {
  local what=$1 code=$2 unit
  shift 2
  systemctl start "${units[@]}"
  for unit; do
    await 60 "the end of $unit: $what" is_down "$unit"
    expect "$what: $unit" "$code failed, restarts 0" "$(ended "$unit")"
  done
}

prove_what_stays_down() {
  clean_up
  echo 'run { speed: 1 }' >/etc/muster/job.txtpb
  stays_down "a wrong config" 2 "${units[@]}"
  clean_up
  chmod 0644 /etc/muster/token
  stays_down "a token that others may read" 2 "${units[@]}"
  chmod 0600 /etc/muster/token
  clean_up
  sed -i 's#/srv/images#/srv/nothing#' /etc/muster/job.txtpb
  stays_down "no data" 3 "${workers[@]}"
  expect "no data: the server waits" active "$(property "$server" ActiveState)"
  clean_up
  sed -i 's/base: 0.01/base: 1000000/' /etc/muster/job.txtpb
  stays_down "a value that is not finite" 4 "$server"
  clean_up
  systemctl start "$server"
  await 30 "the server reads its config" test -f $run/config.txtpb
  sed -i 's/seed: 1/seed: 2/' /etc/muster/job.txtpb
  stays_down "a worker that does not match the job" 8 "${workers[@]}"
  clean_up
}

inside() {
  local seconds code=0
  bash /root/service_units_test.sh /root /usr/local/bin/muster >&2 || code=$?
  expect "systemd-analyze finds nothing in the units" 0 $code
  set_up >&2
  # Choose as many steps as take half a minute.
  launch 400
  seconds=$(sed -n 's/.*"elapsed_s":\([0-9.]*\).*"final":true.*/\1/p' /var/lib/muster/reference/metrics.jsonl)
  steps=$(awk -v seconds="$seconds" 'BEGIN { print int(400 * 30 / (seconds + 0.1)) }')
  launch "$steps"
  hash=$(hash_of /var/lib/muster/reference)
  prove_runs
  prove_what_stays_down
  echo end
}

case ${1:-} in
  inside) inside ;;
  *) outside "$@" ;;
esac
