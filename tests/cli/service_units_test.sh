#!/bin/bash
# docs/services: units that systemd takes and enables, with the built program in the place of the
# installed one, and no more exposed than they were. Exit code 77: there is no systemd-analyze to ask.
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
  # Exposure from 0 to 100.
  systemd-analyze security --offline=true --threshold=16 "$file" > "$folder/security" 2>&1 || {
    grep -E '✗|→' "$folder/security"
    exit 1
  }
  # What they are started with is what the program knows.
  command=$(sed -nE 's/^ExecStart=\S+ (server|worker) .*/\1/p' "$file")
  help=$("$program" "$command" --help)
  while read -r option; do
    grep -q -- "$option" <<< "$help" || {
      echo "$unit: $option is no option of muster $command"
      exit 1
    }
  done < <(grep ^ExecStart= "$file" | grep -oE -- '--[a-z-]+')
done

# As `systemctl enable` does: started with the host, in an order in which the server is stopped first.
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
# libzmq cannot listen without it.
grep -q '^RestrictAddressFamilies=.*\<AF_NETLINK\>' "$units/muster-server.service"
# With 0, systemd-coredump keeps dumps all the same.
[[ $(grep -lx LimitCORE=1 "$units"/*.service | wc -l) == 2 ]]
