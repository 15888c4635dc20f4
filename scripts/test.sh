#!/usr/bin/env bash
# Builds and runs the tests: scripts/test.sh [release|debug|tsan] [ctest options]
# -L threads, parsing, cuda or deep as the first option builds and runs only the tests with that label. Two labels
# are excluded by default: cuda, the CUDA backend, takes half as long to build as everything else; deep is for
# long searches through states of the protocol.
# The last lines list the skipped tests with their reasons, and count passed, failed and skipped tests. With CI set, a
# reason that is not in tests/allowed_skips.txt is a failure.
#
# Tests of the Python package and of model files run with MUSTER_TEST_PYTHON (default: scripts/python_env.sh --find).
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
case ${1:-} in release | debug | tsan) preset=$1; shift ;; esac
logs=build/$preset/Testing/Temporary
targets=(tests/all bench/all muster muster-server muster-worker)
case "${1:-} ${2:-}" in
  "-L threads" | "-L parsing" | "-L cuda") targets=("tests_$2") ;;
  "-L deep") targets=(model_check simulate) ;;
  " ") set -- -LE 'cuda|deep' ;;
esac

# Lists skipped tests by reason: cases of GoogleTest (a line "FILE:LINE: Skipped", then the reason, then the name
# of the case), and programs that print "skipped: REASON".
summary() {
  awk -v allowed=tests/allowed_skips.txt '
    BEGIN { while ((getline line <allowed) > 0) if (line !~ /^#/) patterns[line] }
    function is_allowed(reason, pattern) {
      for (pattern in patterns) if (reason ~ pattern) return 1
    }
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
      for (reason in names) {
        print "  " names[reason] ": " reason
        if (ci && !is_allowed(reason)) unexpected[reason]
      }
      for (reason in unexpected) {
        print "Skipped for a reason that tests/allowed_skips.txt does not name: " reason
        result = 1
      }
      printf "%d passed, %d failed, %d skipped\n", tests - failed - count, failed, count
      exit result
    }' ci="${CI:-}" failed="$(grep -c . "$logs/LastTestsFailed.log" 2>/dev/null || true)" "$logs/LastTest.log"
}

# Prints a progress line on a terminal, otherwise a line per hundred tests, and the full output of failed tests.
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
if [[ -z ${MUSTER_TEST_PYTHON:-} ]] && python=$(scripts/python_env.sh --find); then
  export MUSTER_TEST_PYTHON=$python
fi
if python=$(command -v "${MUSTER_TEST_PYTHON:-python3}"); then PATH=$PATH:$(dirname "$python"); fi  # for torchrun
if ! "${MUSTER_TEST_PYTHON:-python3}" -c 'import numpy, torch' 2>/dev/null; then
  echo "Without PyTorch, tests are skipped. To run them, install it for tests (7 GB): scripts/python_env.sh"
fi
echo "Building build/$preset (the first time takes several minutes on two cores) ..."
scripts/build.sh "$preset" "${targets[@]}"
built=$SECONDS
# Runs three tests per processor, because many tests wait for deadlines. With sanitizers, that would be too slow
# to meet some deadlines.
at_a_time=3
[[ $preset == release ]] || at_a_time=2
result=0
rm -f "$logs/LastTestsFailed.log"
echo "Built in $built s. Testing ..."
ctest --preset "$preset" --no-tests=error -j "$((at_a_time * $(nproc)))" "$@" 2>&1 | progress || result=$?
echo "Tested in $((SECONDS - built)) s."
summary || result=1
exit $result
