#!/usr/bin/env bash
# Builds and runs the whole test suite: scripts/test.sh [release|debug|tsan] [ctest options]
# With -L threads, parsing, cuda or emulated as the first option it builds only the tests of that label.
# At the end it says what was skipped, and why.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
case ${1:-} in release | debug | tsan) preset=$1; shift ;; esac
targets=()
case "${1:-} ${2:-}" in "-L threads" | "-L parsing" | "-L cuda" | "-L emulated") targets=("tests_$2") ;; esac

# What was skipped, by reason: cases of GoogleTest (a line "FILE:LINE: Skipped", the reason in the next
# ones, the case's name), and programs that say "skipped: REASON".
skipped() {
  awk '
    function skip(name) { ++count; names[reason] = names[reason] (names[reason] == "" ? "" : ", ") name }
    /^[0-9]+\/[0-9]+ Testing: / { test = $3 }
    /: Skipped$/ { in_reason = 1; reason = ""; next }
    /^\[  SKIPPED \] .* \([0-9]+ ms\)$/ { sub(/, where GetParam.*/, ""); skip($4); in_reason = 0; next }
    in_reason && /./ { reason = reason (reason == "" ? "" : " ") $0 }
    /^skipped: / { reason = substr($0, 10); skip(test) }
    END {
      print "Skipped: " count + 0
      for (reason in names) print "  " names[reason] ": " reason
    }' "build/$preset/Testing/Temporary/LastTest.log"
}

scripts/setup.sh
echo "Building build/$preset ..."
scripts/build.sh "$preset" "${targets[@]}"
# Three times as many at a time as there are processors: many tests wait for deadlines. Sanitizers are slow
# enough to miss some of these.
at_a_time=3
[[ $preset == release ]] || at_a_time=2
result=0
ctest --preset "$preset" -j "$((at_a_time * $(nproc)))" "$@" || result=$?
skipped
exit $result
