#!/bin/sh
# Checks that the update kernels for different instruction sets share no symbol that the linker may merge
# (for the reason see ps/update/update_kernels.inc): of update_kernels_*.o in the library, only the tables may
# be visible. Ignores symbols that AddressSanitizer adds, and the pointer to C++'s personality routine, which
# sanitizers need: it is no code, and the same in every version.
# Usage: scripts/check_update_symbols.sh NM LIBRARY TABLES
symbols=$("$1" -A --defined-only --extern-only "$2" | grep ':update_kernels_' | \
  grep -vE '__odr_asan| DW\.ref\.__gxx_personality_v0$')
others=$(echo "$symbols" | grep -v 'UpdateKernels')
if [ -n "$others" ]; then
  echo "the linker may merge these symbols of different instruction sets:"
  echo "$others"
  exit 1
fi
tables=$(echo "$symbols" | grep -c 'UpdateKernels')
if [ "$tables" -ne "$3" ]; then
  echo "$2: expected $3 tables of kernels, found $tables"
  exit 1
fi
