#!/bin/bash
# docs/services: systemd accepts and enables the units, with the built program in place of the
# installed one, and their exposure has not grown. Exit code 77: systemd-analyze is not installed.
# scripts/services.sh runs them.
# Arguments: the folder of the units, the program.
set -euo pipefail

units=$1 program=$2
command -v systemd-analyze > /dev/null || { echo 'skipped: no systemd-analyze here (Debian package systemd)'; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for unit in muster-server.service muster-worker@.service; do
  file=$folder/${unit/@./@0.}
  sed "s#/usr/local/bin/muster#$program#" "$units/$unit" > "$file"
  grep -q "^ExecStart=$program " "$file"
  # It may complain about other units of this system. Only findings about this one count.
  systemd-analyze verify "$file" 2>&1 | grep -F "$(basename "$file")" && exit 1
  # Exposure is a number from 0 to 100.
  systemd-analyze security --offline=true --threshold=16 "$file" > "$folder/security" 2>&1 || {
    grep -E '✗|→' "$folder/security"
    exit 1
  }
  # The program knows the options in ExecStart.
  command=$(sed -nE 's/^ExecStart=\S+ (server|worker) .*/\1/p' "$file")
  help=$("$program" "$command" --help)
  while read -r option; do
    grep -q -- "$option" <<< "$help" || {
      echo "$unit: $option is no option of muster $command"
      exit 1
    }
  done < <(grep ^ExecStart= "$file" | grep -oE -- '--[a-z-]+')
done

# As `systemctl enable` does: both start with the host, and the server stops first.
units_folder=$folder/root/etc/systemd/system
mkdir -p "$units_folder"
cp "$units"/*.service "$units_folder/"
systemctl --root="$folder/root" enable muster-server muster-worker@0 muster-worker@1 2> /dev/null
for unit in muster-server muster-worker@0 muster-worker@1; do
  [[ -L $units_folder/multi-user.target.wants/$unit.service ]] || {
    echo "$unit: not enabled"
    exit 1
  }
done
grep -q '^Before=muster-server.service$' "$units/muster-worker@.service"
# Without it libzmq cannot listen.
grep -q '^RestrictAddressFamilies=.*\<AF_NETLINK\>' "$units/muster-server.service"
# With 0 systemd-coredump would still store dumps.
[[ $(grep -lx LimitCORE=1 "$units"/*.service | wc -l) == 2 ]]
