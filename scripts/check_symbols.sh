#!/usr/bin/env bash
# Checks that programs and libraries run on RHEL 9, Ubuntu 22.04 and newer systems: none may use newer symbols
# of glibc or libstdc++ than RHEL 9 has (GCC 11). Prints the newest versions used; exit code 1 if one is too new.
# Usage: scripts/check_symbols.sh FILE ...
set -euo pipefail
limits=(GLIBC_2.34 GLIBCXX_3.4.29 CXXABI_1.3.13)
status=0
for limit in "${limits[@]}"; do
  family=${limit%_*}_
  newest=
  for file in "$@"; do
    # The loader checks these versions. GLIBC_ABI_... and GLIBC_PRIVATE sort last: no limit allows them.
    headers=$(objdump -p "$file")
    found=$(sed -n '/^Version References/,$p' <<<"$headers" |
      grep -oE "\\b${family}[0-9A-Z_.]+" | sort -Vu | tail -n 1) || true
    [[ -n $found ]] || continue
    if [[ $(printf '%s\n' "$limit" "$found" | sort -V | tail -n 1) != "$limit" ]]; then
      echo "$file: expected symbols of at most $limit, found $found:" >&2
      objdump -T "$file" | grep -F '*UND*' | grep -F "($found)" | sed 's/^/    /' >&2 || true
      status=1
    fi
    newest=$(printf '%s\n' "$newest" "$found" | sort -V | tail -n 1)
  done
  echo "newest symbols: ${newest:-no $family} (allowed: $limit)"
done
exit $status
