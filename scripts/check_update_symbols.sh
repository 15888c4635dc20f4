#!/bin/sh
# The versions of the pass for each instruction set share no symbol that a linker may merge
# (ps/update/update_kernels.inc says why): of the library's update_kernels_*.o only the tables are visible.
# Not counted: what AddressSanitizer adds, and the pointer to C++'s personality routine, which
# sanitizers' landing pads need: no code, the same in every version.
# Usage: scripts/check_update_symbols.sh NM LIBRARY TABLES
symbols=$("$1" -A --defined-only --extern-only "$2" | grep ':update_kernels_' | \
  grep -vE '__odr_asan| DW\.ref\.__gxx_personality_v0$')
others=$(echo "$symbols" | grep -v 'UpdateKernels')
if [ -n "$others" ]; then
  echo "symbols that the linker may merge between instruction sets:"
  echo "$others"
  exit 1
fi
tables=$(echo "$symbols" | grep -c 'UpdateKernels')
if [ "$tables" -ne "$3" ]; then
  echo "$2: expected $3 tables of kernels, found $tables"
  exit 1
fi
