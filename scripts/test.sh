#!/usr/bin/env bash
# Builds and runs the whole test suite: scripts/test.sh [release|debug|tsan] [ctest options]
# With -L threads, parsing, cuda or emulated as the first option it builds only the tests of that label.
# At the end it says what was skipped, and why, and how many tests passed, failed and were skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
case ${1:-} in release | debug | tsan) preset=$1; shift ;; esac
logs=build/$preset/Testing/Temporary
targets=()
case "${1:-} ${2:-}" in "-L threads" | "-L parsing" | "-L cuda" | "-L emulated") targets=("tests_$2") ;; esac

# What was skipped, by reason: cases of GoogleTest (a line "FILE:LINE: Skipped", the reason in the next
# ones, the case's name), and programs that say "skipped: REASON".
summary() {
  awk '
    function skip(name) {
      if (!skipped[test]++) ++count
      names[reason] = names[reason] (names[reason] == "" ? "" : ", ") name
    }
    /^[0-9]+\/[0-9]+ Testing: / { test = $3; ++tests }
    /: Skipped$/ { in_reason = 1; reason = ""; next }
    /^\[  SKIPPED \] .* \([0-9]+ ms\)$/ { sub(/, where GetParam.*/, ""); skip($4); in_reason = 0; next }
    in_reason && /./ { reason = reason (reason == "" ? "" : " ") $0 }
    /^skipped: / { reason = substr($0, 10); skip(test) }
    END {
      if (count > 0) print "Skipped:"
      for (reason in names) print "  " names[reason] ": " reason
      printf "%d passed, %d failed, %d skipped\n", tests - failed - count, failed, count
    }' failed="$(grep -c . "$logs/LastTestsFailed.log" 2>/dev/null || true)" "$logs/LastTest.log"
}

scripts/setup.sh
echo "Building build/$preset ..."
scripts/build.sh "$preset" "${targets[@]}"
# Three times as many at a time as there are processors: many tests wait for deadlines. Sanitizers are slow
# enough to miss some of these.
at_a_time=3
[[ $preset == release ]] || at_a_time=2
result=0
rm -f "$logs/LastTestsFailed.log"
ctest --preset "$preset" -j "$((at_a_time * $(nproc)))" "$@" || result=$?
summary
exit $result
