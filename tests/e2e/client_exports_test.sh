#!/bin/sh
# client_exports_test.sh LIBRARY: fails if libmuster_client.so exports a name that does not begin with muster_, or
# needs a library besides the C library and libgcc_s.
set -eu
exported=$(nm -D --defined-only "$1" | awk '{ print $3 }')
foreign=$(printf '%s\n' "$exported" | grep -v '^muster_' || true)
if [ -z "$exported" ] || [ -n "$foreign" ]; then
  echo "$1: expected only names that begin with muster_, got: ${foreign:-none}"
  exit 1
fi
needed=$(objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }' | grep -v -e '^libc\.so' -e '^ld-linux' -e '^libgcc_s' || true)
if [ -n "$needed" ]; then
  echo "$1: expected no library besides libc and libgcc_s, got: $needed"
  exit 1
fi
