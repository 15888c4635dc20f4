#!/usr/bin/env bash
# Builds one preset: scripts/build.sh [release|debug|tsan] [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
[[ -f build/$preset/build.ninja ]] || cmake --preset "$preset" -Wno-dev >/dev/null
targets=()
for target in "$@"; do targets+=(--target "$target"); done
cmake --build --preset "$preset" -- --quiet "${targets[@]}" 2>/dev/null ||
  cmake --build --preset "$preset" "${targets[@]}"
