#!/usr/bin/env bash
# What scripts/services.sh runs as root in its virtual machine: there systemd starts it after each boot.
# Sets Muster up as docs/SERVICES.md says, disturbs what runs there, and reports what was found: a line
# "ok", "WRONG" or "note" each. The steps between two boots are a part; $state/part says which is next.
#
# 10.0.0.5 is this host, as in the units. A network namespace "far" is another one: 10.0.0.6, which the
# units allow, and 10.0.1.6, which they do not.
set -uo pipefail

state=/var/lib/services-proof
run=/var/lib/muster/run
probe=/usr/local/lib/services-probe # this file, for others than root
server=muster-server.service
workers=(muster-worker@0.service muster-worker@1.service)
units=("$server" "${workers[@]}")
slow=0 # how much longer everything may take; 0: this is not the machine of scripts/services.sh
[[ $(</proc/cmdline) =~ services_slow=([0-9]+) ]] && slow=${BASH_REMATCH[1]}

# --- What is reported -------------------------------------------------------------------------------

report() { printf '%-5s %s\n' "$1" "$2" >>/dev/ttyS1; }

# expect WHAT EXPECTED GOT; EXPECTED is a pattern of the shell.
expect() {
  # shellcheck disable=SC2053  # a pattern
  if [[ $3 == $2 ]]; then
    report ok "$1: ${3//$'\n'/ }"
  else
    report WRONG "$1: expected ${2//$'\n'/ }, found ${3//$'\n'/ }"
  fi
}

# await SECONDS WHAT COMMAND ...: until that succeeds; says so if it does not in time.
await() {
  local until=$((SECONDS + $1 * slow)) what=$2
  shift 2
  until "$@"; do
    if ((SECONDS >= until)); then
      report WRONG "waited in vain for this: $what"
      systemctl --no-pager status "${units[@]}" >>/dev/ttyS0 2>&1
      journalctl --no-pager -n 60 -o short-monotonic >>/dev/ttyS0 2>&1
      return 1
    fi
    sleep 0.3
  done
}

# --- What is asked ----------------------------------------------------------------------------------

property() { systemctl show --value -p "$2" "$1"; }
# How the last process of a unit ended, and what systemd made of it: "6 activating exit-code".
ended() { echo "$(property "$1" ExecMainStatus) $(property "$1" ActiveState) $(property "$1" Result)"; }
is_down() { [[ $(property "$1" ActiveState) =~ ^(inactive|failed)$ ]]; }
all_down() { is_down "$server" && is_down "${workers[0]}" && is_down "${workers[1]}"; }
restarts() { property "$1" NRestarts; }
restarted_since() { (($(restarts "$1") > $2)); }
# What a unit has said since begin_run or mark.
said() { journalctl --no-pager -o cat -u "$1" --since "@$(<"$state/mark")" 2>/dev/null; }
says() { said "$1" | grep -qE "$2"; }
mark() { sleep 1.1 && date +%s >"$state/mark"; } # the journal is asked by whole seconds
of_status() { sed -n "s/^ *\"$1\": \([0-9]*\),\{0,1\}\$/\1/p" "$run/status.json" 2>/dev/null | head -n 1; }
step() { of_status step | grep . || echo 0; }
server_pid() { pgrep -P "$(property "$server" MainPID)" -x muster-server; }
# The present server is at that step, or through.
trains() {
  if is_down "$server"; then return 0; fi
  [[ $(of_status pid) == "$(server_pid)" ]] && (($(step) >= $1))
}
stopped_at() {
  journalctl --no-pager -o cat -u "$server" | sed -n 's/^Stopped by SIGTERM at step \([0-9,]*\) of.*/\1/p' | tail -n 1
}
goes_on_from() { said "$server" | sed -n 's/^ *going on *\([0-9,]*\) of .* done.*/\1/p' | tail -n 1; }
restarts_of_run() { sed -n 's/.*"server_restarts":\([0-9]*\).*/\1/p' "$run/metrics.jsonl" | tail -n 1; }
hash_of() { sed -n 's/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl" 2>/dev/null | tail -n 1; }

# --- What is done -----------------------------------------------------------------------------------

as_muster() { systemd-run --quiet --wait --pipe --collect --uid=muster --gid=muster -- "$@"; }

# A new run with the job in /etc/muster, whose journal begins here.
clean_up() {
  systemctl stop "${workers[@]}" "$server"
  rm -rf /etc/systemd/system/muster-*.service.d /run/systemd/system/muster-*.service.d
  systemctl daemon-reload
  systemctl reset-failed "muster-*" 2>/dev/null
  while mountpoint -q "$run" && umount "$run"; do :; done
  rm -rf /var/lib/muster/{run,reference}
  write_job "$(<"$state/steps")"
  mark
}
begin_run() {
  clean_up
  systemctl start "${units[@]}"
}

# drop_in UNIT LINE ...: in its section [Service].
drop_in() {
  local folder=/etc/systemd/system/$1.d
  shift
  mkdir -p "$folder"
  printf '%s\n' '[Service]' "$@" >"$folder/proof.conf"
  systemctl daemon-reload
}

# with_option UNIT OPTION ...: what it starts, with more options.
with_option() {
  local unit=$1 command
  shift
  command=$(sed -n 's/^ExecStart=//p' "/etc/systemd/system/${unit/@[0-9]/@}")
  drop_in "$unit" ExecStart= "ExecStart=$command $*"
}

# write_job STEPS: a tiny network, since the machine may be emulated, on images in files, with something
# random in each step, and a checkpoint now and then.
write_job() {
  cat >/etc/muster/job.txtpb <<END
run { seed: 1 steps: $1 global_batch: 32 slices: 4 log_every_steps: 20 }
data {
  format: CIFAR10
  dir: "/srv/images"
  preprocess { crop_height: 12 crop_width: 12 flip: true standardize: true }
}
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
END
  chmod 0644 /etc/muster/job.txtpb
}

# As SERVICES.md has it, as far as it is not in the machine's image.
set_up() {
  useradd --system --home-dir /var/lib/muster --shell /usr/sbin/nologin muster
  install -d -m 0755 /etc/muster
  muster token /etc/muster/token
  chown muster: /etc/muster/token
  install -m 0644 /root/units/muster-server.service /root/units/muster-worker@.service /etc/systemd/system/
  systemctl daemon-reload

  cp "$0" $probe
  muster data synth /srv/images --train 2560 --test 500
  # A home that anybody may read, a folder that anybody may write, and a process of another user.
  install -d -m 0755 /home/someone && echo here >/home/someone/file
  install -d -m 1777 /srv/open
  mkdir /srv/mount && mount -t tmpfs -o mode=1777 mount /srv/mount
  chmod 0755 /root
}

# Does the hash of the run that is over agree with that of a launch, and did all end with 0?
expect_whole() {
  local unit
  for unit in "${units[@]}"; do expect "$1: $unit is done" "0 inactive success" "$(ended "$unit")"; done
  expect "$1: the weights at the end" "$(<"$state/hash")" "$(hash_of "$run")"
}

# --- What is proven ---------------------------------------------------------------------------------

prove_the_units() {
  local unit
  for unit in "$server" "${workers[0]}"; do
    expect "systemd-analyze verify $unit" "" "$(systemd-analyze verify "$unit" 2>&1 | grep -F "$unit")"
    report note "systemd-analyze security $unit: $(systemd-analyze security --no-pager "$unit" | sed -n 's/.*exposure level for .*: //p')"
  done
}

# Also finds out how many steps take a minute, or more where all is slow.
prove_the_reference() {
  local seconds steps=$((slow > 1 ? 40 : 400)) hash
  install -d -o muster -g muster -m 0700 /var/lib/muster
  write_job $steps
  as_muster /usr/local/bin/muster launch /etc/muster/job.txtpb --run-dir /var/lib/muster/reference >/dev/null 2>&1
  seconds=$(sed -n 's/.*"elapsed_s":\([0-9]*\).*"final":true.*/\1/p' /var/lib/muster/reference/metrics.jsonl)
  steps=$((steps * (slow > 1 ? 90 : 60) / (seconds + 1)))
  echo "$steps" >"$state/steps"
  rm -rf /var/lib/muster/reference
  write_job "$steps"
  as_muster /usr/local/bin/muster launch /etc/muster/job.txtpb --run-dir /var/lib/muster/reference \
    >"$state/launch.log" 2>&1
  hash=$(hash_of /var/lib/muster/reference)
  echo "$hash" >"$state/hash"
  expect "a launch of $steps steps ends with weights" '????????????????' "$hash"
}

prove_a_quiet_run() {
  begin_run
  await 30 "two workers on one host join" says "$server" '^Started: ' || true
  await 120 "the run's end" all_down || return
  expect_whole "a run that nothing disturbs"
  local rank
  for rank in 0 1; do
    expect "how rank $rank joined" "joined as rank $rank over shared memory" \
      "$(said "${workers[rank]}" | grep -oE 'joined as rank . over [a-zA-Z ]+')"
  done
  systemctl start "$server"
  await 30 "the end of a run that is complete" is_down "$server" || return
  expect "a complete run, started again" "0 inactive success" "$(ended "$server")"
  expect "… says" '*is complete: nothing is left to do*' "$(said "$server" | grep 'is complete')"
}

prove_what_the_journal_shows() {
  said "$server" >"$state/journal.log"
  expect "the journal has the network, as a terminal" '*5 layers*' "$(grep 'network  ' "$state/journal.log")"
  expect "… the steps" '*epoch*loss*accuracy*' "$(grep -m 1 '^step ' "$state/journal.log")"
  expect "… the weights' hash" "*$(<"$state/hash")" "$(grep 'weights hash' "$state/journal.log")"
  expect "… no escape sequences" 0 "$(grep -c $'\e' "$state/journal.log")"
}

# disturb WHAT UNIT CODE COMMAND ...: after which that unit ends with that code (as systemd says it), is
# started again, and the run goes on.
disturb() {
  local what=$1 unit=$2 code=$3 count from
  shift 3
  if is_down "$server"; then
    report WRONG "the run was over before $what"
    return 1
  fi
  count=$(restarts "$unit") from=$(step)
  mark
  "$@"
  await 40 "$unit is started again after $what" restarted_since "$unit" "$count" || return
  await 60 "the run goes on after $what" trains $((from + 2)) || return
  expect "$what" "$code" "$(journalctl --no-pager -o cat -u "$unit" --since "@$(<"$state/mark")" |
    grep -oE 'Main process exited, .*' | head -n 1 | sed 's/Main process exited, //')"
}

prove_that_losses_do_no_harm() {
  begin_run
  await 60 "the run's first steps" trains 2 || return
  disturb "SIGKILL of all of the server" "$server" "code=killed, status=9/KILL" \
    systemctl kill -s KILL "$server" || return
  disturb "SIGKILL of a worker" "${workers[1]}" "code=killed, status=9/KILL" \
    systemctl kill -s KILL "${workers[1]}" || return
  disturb "SIGSEGV of the server's program" "$server" "code=exited, status=6/NOTCONFIGURED" \
    kill -s SEGV "$(server_pid)" || return
  await 200 "the run's end" all_down || return
  expect_whole "a run with these losses"
  expect "restarts that its metrics tell" 2 "$(restarts_of_run)"
}

prove_that_stops_do_no_harm() {
  begin_run
  await 60 "the run's first steps" trains 2 || return
  disturb "SIGKILL of muster, the server's parent" "$server" "code=killed, status=9/KILL" \
    systemctl kill --kill-who=main -s KILL "$server" || return
  disturb "SIGSEGV of a worker" "${workers[0]}" "code=*, status=11/SEGV" \
    systemctl kill -s SEGV "${workers[0]}" || return

  mark
  systemctl stop "$server"
  expect "systemctl stop" "143 inactive success" "$(ended "$server")"
  local stopped
  stopped=$(stopped_at)
  expect "… says where the next start goes on" "*goes on from step $stopped." \
    "$(said "$server" | grep -E 'goes on from step')"
  systemctl start "$server"
  await 60 "the run goes on after systemctl stop and start" trains 1 || return
  expect "the next start goes on there" "$stopped" "$(goes_on_from)"
  await 200 "the run's end" all_down || return
  expect_whole "a run with these losses and a stop"
  expect "restarts that its metrics tell" 1 "$(restarts_of_run)"
  report note "muster runs: $(muster runs "$run" | tail -n 1)"
  report note "how workers ended and were started again: $(journalctl --no-pager -o cat -u 'muster-worker@*' \
    -b | grep -oE 'Main process exited, .*' | sed 's/.*, //' | sort | uniq -c | tr -s ' \n' ' ')"
}

# fails WHAT SERVER WORKER: units as they are end as these patterns say: "code state result".
fails() {
  local what=$1 of_server=$2 of_worker=$3
  await 30 "the server's end: $what" is_down "$server" || return
  expect "$what: server" "$of_server" "$(ended "$server"), restarts $(restarts "$server")"
  await 30 "the worker's end: $what" is_down "${workers[0]}" || return
  expect "$what: worker" "$of_worker" "$(ended "${workers[0]}"), restarts $(restarts "${workers[0]}")"
}

prove_what_stays_down() {
  clean_up
  echo 'run { speed: 1 }' >/etc/muster/job.txtpb
  systemctl start "${units[@]}"
  fails "a wrong config" "2 failed exit-code, restarts 0" "2 failed exit-code, restarts 0"

  clean_up
  sed -i 's#/srv/images#/srv/nothing#' /etc/muster/job.txtpb
  systemctl start "${units[@]}"
  await 30 "the worker's end: no data" is_down "${workers[0]}" || return
  expect "no data: worker" "3 failed exit-code, restarts 0" "$(ended "${workers[0]}"), restarts $(restarts "${workers[0]}")"
  expect "… the server waits" "active" "$(property "$server" ActiveState)"

  clean_up
  cp -r /srv/images /home/someone/
  sed -i 's#/srv/images#/home/someone/images#' /etc/muster/job.txtpb
  expect "data in /home, without the sandbox" "*weights hash*" \
    "$(as_muster /usr/local/bin/muster launch /etc/muster/job.txtpb --run-dir /var/lib/muster/reference --steps 5 2>&1 | grep 'weights hash')"
  systemctl start "${units[@]}"
  await 30 "the worker's end: data in /home" is_down "${workers[0]}" || return
  expect "data in /home: worker" "3 failed exit-code, restarts 0" "$(ended "${workers[0]}"), restarts $(restarts "${workers[0]}")"

  clean_up
  chmod 0644 /etc/muster/token
  systemctl start "${units[@]}"
  fails "a token that others may read" "2 failed exit-code, restarts 0" "2 failed exit-code, restarts 0"
  chmod 0600 /etc/muster/token

  clean_up
  mv /etc/muster/token /etc/muster/away
  systemctl start "${units[@]}"
  fails "no token" "2 failed exit-code, restarts 0" "2 failed exit-code, restarts 0"
  mv /etc/muster/away /etc/muster/token

  clean_up
  sed -i 's/base: 0.01/base: 1000000/' /etc/muster/job.txtpb
  systemctl start "${units[@]}"
  await 60 "the end of a run that is not finite" is_down "$server" || return
  expect "a value that is not finite: server" "4 failed exit-code, restarts 0" "$(ended "$server"), restarts $(restarts "$server")"
  await 30 "a worker's return without a server" restarted_since "${workers[0]}" 0 || return
  expect "… worker" "code=exited, status=[457]/*" \
    "$(said "${workers[0]}" | sed -n 's/.*Main process exited, //p' | tail -n 1)"
}

prove_what_comes_back() {
  clean_up
  with_option "${workers[1]}" --seed 2
  systemctl start "${units[@]}"
  await 30 "the end of a worker that does not fit" is_down "${workers[1]}" || return
  expect "a worker that does not fit" "8 failed exit-code, restarts 0" "$(ended "${workers[1]}"), restarts $(restarts "${workers[1]}")"
  expect "… the server waits for another" "active" "$(property "$server" ActiveState)"
  rm -r "/etc/systemd/system/${workers[1]}.d" && systemctl daemon-reload
  systemctl start "${workers[1]}"
  await 60 "the run begins with another worker" trains 2 || return

  clean_up
  with_option "$server" --set deadlines.start_s=5
  systemctl start "$server" "${workers[0]}"
  await 60 "a server without workers is started again" restarted_since "$server" 0 || return
  expect "a server without all workers" "*code=exited, status=5/*" "$(said "$server" | grep 'Main process exited')"
  systemctl start "${workers[1]}"
  await 90 "the run begins when the worker is there" trains 2 || return

  clean_up
  perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(LocalAddr => "10.0.0.5:7700", Listen => 1) or die; sleep' &
  local listener=$!
  sleep 1
  systemctl start "$server"
  await 150 "StartLimitBurst" is_down "$server" || return
  expect "a port that is taken" "1 failed *, restarts 10" "$(ended "$server"), restarts $(restarts "$server")"
  expect "… says" "*cannot listen*" "$(said "$server" | grep -m 1 'cannot listen')"
  kill $listener
}

prove_full_disks() {
  clean_up
  install -d -o muster -g muster -m 0700 $run
  mount -t tmpfs -o size=4m,mode=0777 disk $run
  systemctl start "${units[@]}"
  await 60 "the run's first steps" trains 2 || return
  dd if=/dev/zero of=$run/filler bs=4k 2>/dev/null
  await 150 "the end of a run on a full disk" is_down "${workers[0]}" || return
  await 30 "the server's end" restarted_since "$server" 0 || return
  expect "a full disk" "code=exited, status=1/FAILURE" "$(said "$server" | sed -n 's/.*Main process exited, //p')"
  expect "… the weights at the end" "*$(<"$state/hash")" "$(said "$server" | grep -m 1 'weights hash')"
  rm $run/filler
  systemctl start "${units[@]}"
  await 60 "the end of a run whose disk has room again" is_down "$server" || return
  expect "a disk that has room again" "0 inactive success" "$(ended "$server")"
  expect "… the weights at the end" "$(<"$state/hash")" "$(hash_of "$run")"
}

# May this process attach to another one as a debugger does?
may_trace() { perl -e 'exit(syscall(101, 0x4206, int(shift), 0, 0) != 0)' "$1"; } # PTRACE_SEIZE

# What a process may do: a line "NAME yes" or "NAME no" each.
probe() {
  try() {
    local name=$1
    shift
    if timeout $((5 + 5 * slow)) "$@" >/dev/null 2>&1; then echo "$name yes"; else echo "$name no"; fi
  }
  try read-home cat /home/someone/file
  try write-elsewhere touch /srv/open/file
  try write-mount touch "/srv/mount/of-probe-$$"
  try write-tmp touch /tmp/of-probe
  try write-state touch /var/lib/muster/of-probe
  try see-others test -d /proc/1
  may_trace "$(<"$state/sleeper")" && echo "trace yes" || echo "trace no"
  try namespace unshare --user true
  try set-user-id install -m 4755 /bin/true "$(mktemp -d)/true"
  # shellcheck disable=SC2016  # Perl's
  try netlink perl -MSocket -e 'socket(my $s, 16, SOCK_RAW, 0) or die'
  # mmap, to read and write, to execute besides
  try map perl -e 'exit(syscall(9, 0, 4096, 3, 34, -1, 0) == -1)'
  try map-code perl -e 'exit(syscall(9, 0, 4096, 7, 34, -1, 0) == -1)'
  try personality setarch --addr-no-randomize true
  try inside bash -c ': </dev/tcp/10.0.0.6/7799'
  try outside bash -c ': </dev/tcp/10.0.1.6/7799'
  sed -n 's/^Max core file size *\([0-9a-z]*\).*/core \1/p' /proc/self/limits
  sed -n 's/^\(CapBnd\|CapEff\|NoNewPrivs\|Seccomp\):\s*/\1 /p' /proc/self/status
}

prove_the_sandbox() {
  clean_up
  local unit far listeners=() name free server_may worker_may
  systemd-run --quiet --uid=muster --unit=sleeper sleep 1000
  property sleeper.service MainPID >"$state/sleeper"
  chmod 0755 "$state"
  for far in 10.0.0.6 10.0.1.6; do
    # shellcheck disable=SC2016  # Perl's
    ip netns exec far perl -MIO::Socket::INET -e '
      my $s = IO::Socket::INET->new(LocalAddr => shift, Listen => 9) or die; 1 while $s->accept' $far:7799 &
    listeners+=($!)
  done
  sleep 2
  as_muster bash $probe probe >"$state/probe-free" 2>&1
  for unit in muster-server muster-worker@; do
    sed -E "s#^ExecStart=.*#ExecStart=/bin/bash $probe probe#; s/^Type=.*/Type=oneshot/; /^Restart=/d" \
      "/etc/systemd/system/$unit.service" >"/etc/systemd/system/probe-${unit%@}.service"
    systemctl daemon-reload
    systemctl start "probe-${unit%@}"
    journalctl --no-pager -o cat -u "probe-${unit%@}" >"$state/probe-${unit%@}"
  done
  kill "${listeners[@]}"
  systemctl stop sleeper
  # Without a sandbox, as the server, as a worker.
  while read -r name free server_may worker_may; do
    expect "who may $name (the user, server, worker)" "$free $server_may $worker_may" \
      "$(for unit in free muster-server muster-worker; do sed -n "s/^$name //p" "$state/probe-$unit"; done | tr '\n' ' ' | sed 's/ $//')"
  done <<'END'
read-home yes no no
write-elsewhere yes no no
write-mount yes no no
write-tmp yes yes yes
write-state yes yes no
see-others yes no no
trace yes no no
namespace yes no no
set-user-id yes no no
netlink yes yes no
map yes yes yes
map-code yes no yes
personality yes no no
inside yes yes yes
outside yes no no
NoNewPrivs 0 1 1
Seccomp 0 2 2
CapEff 0000000000000000 0000000000000000 0000000000000000
CapBnd * 0000000000000000 0000000000000000
core * 1 1
END
  expect "a sandbox's /tmp is its own" 1 "$(find /tmp -name of-probe 2>/dev/null | grep -vc systemd-private)"
}

# May a host of that address talk to what listens at that address? From "far".
reaches() {
  ip -n far route replace 10.0.0.5/32 dev peer src "$1"
  timeout $((3 * slow)) ip netns exec far bash -c ": </dev/tcp/${2/://}" 2>/dev/null && echo yes || echo no
  ip -n far route del 10.0.0.5/32
}

# A worker on another host: over TCP, encrypted.
prove_another_host() {
  clean_up
  drop_in "${workers[1]}" NetworkNamespacePath=/run/netns/far
  systemctl start "${units[@]}"
  await 60 "the run begins with a worker of another host" trains 2 || return
  perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(LocalAddr => "10.0.0.5:7701", Listen => 1) or die; sleep' &
  local listener=$!
  sleep 1
  expect "who reaches the server: 10.0.0.6, 10.0.1.6; and what has no sandbox: 10.0.1.6" "yes no yes" \
    "$(reaches 10.0.0.6 10.0.0.5:7700) $(reaches 10.0.1.6 10.0.0.5:7700) $(reaches 10.0.1.6 10.0.0.5:7701)"
  kill $listener
  await 150 "the run's end" all_down || return
  expect_whole "a run with a worker of another host"
  expect "how its worker joined" "joined as rank 1 over ZeroMQ" \
    "$(said "${workers[1]}" | grep -oE 'joined as rank . over [a-zA-Z ]+')"
  expect "… encrypted" "*Connections are encrypted*" "$(said "$server" | grep -F encrypted)"
}

# Where the token can be found, of all that a root can read but the programs' memory.
places_of_token() {
  local search=(grep -sF -f /etc/muster/token)
  {
    "${search[@]}" -rl --devices=skip /dev/shm /etc /home /root /run /srv /tmp /var
    "${search[@]}" -l /proc/[0-9]*/{environ,cmdline}
    journalctl --no-pager -o export -a | "${search[@]}" -q && echo journal
    systemctl show --all "${units[@]}" | "${search[@]}" -q && echo "systemctl show"
    systemctl show-environment | "${search[@]}" -q && echo environment
    coredumpctl --no-pager info 2>/dev/null | "${search[@]}" -q && echo coredumpctl
  } | sort -u
}

dumps() { find /var/lib/systemd/coredump / -xdev \( -path '/var/lib/systemd/coredump/*' -o -name core -o -name 'core.*' \) \
  -type f ! -path '/usr/*' ! -path '/opt/*' ! -path '/boot/*' 2>/dev/null | sort -u | wc -l; }

some_dump() { (($(dumps) > 0)); }

# Crashes UNIT, and waits until systemd-coredump has seen to it.
crash() {
  local count
  if [[ ! $2 =~ ^[1-9] ]]; then
    report WRONG "the run was over before SIGSEGV of $1"
    return 1
  fi
  count=$(restarts "$1")
  kill -s SEGV "$2"
  await 40 "$1 is started again after SIGSEGV" restarted_since "$1" "$count"
  sleep $((3 * slow))
}

prove_what_is_secret() {
  clean_up
  expect "crashes leave dumps here" "|/*systemd-coredump*" "$(</proc/sys/kernel/core_pattern)"
  # One that may.
  systemd-run --quiet --unit=dumper -p LimitCORE=infinity sleep 1000
  sleep 1
  kill -s SEGV "$(property dumper.service MainPID)"
  await 20 "a dump of what may leave one" some_dump
  rm -f /var/lib/systemd/coredump/*

  # Without encryption the programs let themselves be dumped, so that it is the unit that does not.
  local unit option
  for option in CURVE NONE; do
    clean_up
    write_job $((10 * $(<"$state/steps"))) # looking everywhere takes its time
    for unit in "${units[@]}"; do with_option "$unit" --set cluster.encryption=$option; done
    systemctl start "${units[@]}"
    await 60 "the run's first steps" trains 2 || return
    expect "encryption $option: where the token is while it runs" /etc/muster/token "$(places_of_token)"
    expect "… may be traced by its user, without a sandbox" "$([[ $option == NONE ]] && echo yes || echo no)" \
      "$(as_muster bash "$probe" may_trace "$(server_pid)" && echo yes || echo no)"
    crash "$server" "$(server_pid)" || return
    await 60 "the run goes on" trains 2 || return
    crash "${workers[0]}" "$(property "${workers[0]}" MainPID)" || return
    expect "encryption $option: dumps after SIGSEGV of server and worker" 0 "$(dumps)"
    expect "… where the token is then" /etc/muster/token "$(places_of_token)"
  done
  report note "coredumpctl: $(coredumpctl --no-pager --no-legend list 2>&1 | awk '{ print $(NF - 2), $(NF - 1), $NF }' | tr '\n' ';')"
}

# --- The machine starts again -----------------------------------------------------------------------

# Has the run go on until the machine is to start again.
before_a_boot() {
  systemctl enable "${units[@]}" 2>/dev/null
  expect "systemctl enable" "enabled enabled enabled" "$(systemctl is-enabled "${units[@]}" | tr '\n' ' ' | sed 's/ $//')"
  begin_run
  await 60 "the run's first steps" trains $(($(<"$state/steps") / 4))
}

after_a_boot() {
  stat -c %Y /proc/1 >"$state/mark"
  await 60 "$1: the run goes on by itself" trains 1
}

# The run that before_a_boot began is disturbed twice more, the second time without a word.
part_1() {
  set_up
  prove_the_units
  prove_the_reference
  prove_a_quiet_run
  prove_what_the_journal_shows
  prove_that_losses_do_no_harm
  prove_that_stops_do_no_harm
  prove_what_stays_down
  prove_what_comes_back
  prove_full_disks
  prove_the_sandbox
  prove_another_host
  prove_what_is_secret
  before_a_boot
  systemctl reboot
}

part_2() {
  after_a_boot "a reboot"
  expect "a reboot: the server writes the run's state and goes on there" "[1-9]* $(stopped_at)" \
    "$(stopped_at) $(goes_on_from)"
  await 60 "some more steps" trains $(($(<"$state/steps") / 2))
  echo b >/proc/sysrq-trigger
}

part_3() {
  after_a_boot "a power cut"
  expect "a power cut: the run goes on at step" "[1-9]*" "$(goes_on_from)"
  await 150 "the run's end" all_down
  expect_whole "a run with a reboot and a power cut"
  expect "restarts that its metrics tell: the power cut's" 1 "$(restarts_of_run)"
  systemctl reboot
}

part_4() {
  stat -c %Y /proc/1 >"$state/mark"
  await 60 "the server's end after a boot with a complete run" is_down "$server"
  expect "a reboot with a complete run" "0 inactive success" "$(ended "$server")"
  await 100 "a worker's end without a server" restarted_since "${workers[0]}" 0
  report note "… its worker: $(ended "${workers[0]}"), restarts $(restarts "${workers[0]}")"
  report end ""
  systemctl poweroff
}

# ----------------------------------------------------------------------------------------------------

network() {
  modprobe veth
  ip netns add far
  ip link add near type veth peer name peer netns far
  ip addr add 10.0.0.5/24 dev near && ip addr add 10.0.1.5/24 dev near && ip link set near up
  ip -n far addr add 10.0.0.6/24 dev peer && ip -n far addr add 10.0.1.6/24 dev peer
  ip -n far link set peer up && ip -n far link set lo up
}

case ${1:-} in
  network | probe | may_trace)
    "$@"
    exit
    ;;
esac
if ((slow == 0)); then
  echo "$0: expected to be run in the machine that scripts/services.sh boots: it cuts the power" >&2
  exit 2
fi
mkdir -p $state
part=$(($(cat $state/part 2>/dev/null || echo 0) + 1))
echo $part >$state/part
report note "boot $part"
"part_$part"
