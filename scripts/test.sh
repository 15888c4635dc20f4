#!/usr/bin/env bash
# Builds and runs the whole test suite: scripts/test.sh [release|debug|tsan] [ctest options]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
case ${1:-} in release | debug | tsan) preset=$1; shift ;; esac

scripts/setup.sh
echo "Building build/$preset ..."
scripts/build.sh "$preset"
ctest --preset "$preset" -j "$(nproc)" "$@"
