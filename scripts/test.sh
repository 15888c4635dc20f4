#!/usr/bin/env bash
# Builds and runs the tests: scripts/test.sh [release|debug|tsan] [ctest options]
# -L threads, parsing or cuda as the first option builds and runs only the tests of that label. The CUDA backend,
# which takes as long to build as half of the rest, is tested with -L cuda only.
# The last lines list the skipped tests with their reasons, and count passed, failed and skipped tests.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
case ${1:-} in release | debug | tsan) preset=$1; shift ;; esac
logs=build/$preset/Testing/Temporary
targets=(tests/all bench/all muster muster-server muster-worker)
case "${1:-} ${2:-}" in "-L threads" | "-L parsing" | "-L cuda") targets=("tests_$2") ;; esac
(($#)) || set -- -LE cuda

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

# One line of progress on a terminal, otherwise one for each hundred tests; failures with all that they print.
progress() {
  awk -v terminal="$([[ -t 1 ]] && echo 1)" '
    function clear() { if (terminal && shown) printf "\r\033[K"; shown = 0 }
    /^ *[0-9]+\/[0-9]+ Test +#/ {
      n = $1 + 0
      split($1, of, "/")
      failed = !/ Passed | \*\*\*Skipped /
      if (failed) { clear(); print }
      else if (terminal) { clear(); printf "  %s %s", $1, substr($4, 1, 60); shown = 1 }
      else if (n % 100 == 0 || n == of[2]) print "  " $1 " tests"
      fflush()
      output = failed
      next
    }
    /^ +Start +[0-9]+: / { output = 0; next }
    /^[0-9]+% tests passed/ { output = 0; clear() }
    /^The following tests FAILED/ { output = 1 }
    output'
}

scripts/setup.sh
echo "Building build/$preset (the first time takes several minutes on two cores) ..."
scripts/build.sh "$preset" "${targets[@]}"
# Three times as many at a time as there are processors: many tests wait for deadlines. Sanitizers are slow
# enough to miss some of these.
at_a_time=3
[[ $preset == release ]] || at_a_time=2
result=0
rm -f "$logs/LastTestsFailed.log"
echo "Testing ..."
ctest --preset "$preset" -j "$((at_a_time * $(nproc)))" "$@" 2>&1 | progress || result=$?
summary
exit $result
