#!/bin/sh
# The versions of the pass for each instruction set share no symbol that a linker may merge
# (ps/pass_kernels.inc says why): of the library's pass_kernels_*.o only the tables are visible.
# Not counted: what AddressSanitizer adds, and the pointer to C++'s personality routine, which
# sanitizers' landing pads need: no code, the same in every version.
# Usage: scripts/check_pass_symbols.sh NM LIBRARY TABLES
symbols=$("$1" -A --defined-only --extern-only "$2" | grep ':pass_kernels_' | \
  grep -vE '__odr_asan| DW\.ref\.__gxx_personality_v0$')
others=$(echo "$symbols" | grep -v 'PassKernels')
if [ -n "$others" ]; then
  echo "symbols that the linker may merge between instruction sets:"
  echo "$others"
  exit 1
fi
tables=$(echo "$symbols" | grep -c 'PassKernels')
if [ "$tables" -ne "$3" ]; then
  echo "$2: expected $3 tables of kernels, found $tables"
  exit 1
fi
