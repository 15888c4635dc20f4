#!/usr/bin/env bash
# Builds and runs the whole test suite: scripts/test.sh [release|debug|tsan] [ctest options]
# With -L threads, -L parsing or -L cuda as the first option it builds only the tests of that label.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
case ${1:-} in release | debug | tsan) preset=$1; shift ;; esac
targets=()
case "${1:-} ${2:-}" in "-L threads" | "-L parsing" | "-L cuda") targets=("tests_$2") ;; esac

scripts/setup.sh
echo "Building build/$preset ..."
scripts/build.sh "$preset" "${targets[@]}"
# Twice as many at a time as there are processors: many tests wait for deadlines.
ctest --preset "$preset" -j "$((2 * $(nproc)))" "$@"
