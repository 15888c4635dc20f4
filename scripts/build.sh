#!/usr/bin/env bash
# Builds one preset: scripts/build.sh [release|debug|tsan] [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
[[ -f build/$preset/build.ninja ]] || cmake --preset "$preset" -Wno-dev >/dev/null
targets=()
for target in "$@"; do targets+=(--target "$target"); done
if [[ -t 1 ]]; then
  cmake --build --preset "$preset" "${targets[@]}"  # with Ninja's progress line
else
  cmake --build --preset "$preset" "${targets[@]}" -- --quiet
fi
