#!/usr/bin/env bash
# Run before every push: what continuous integration does that the commits since BASE can break, in about ten minutes
# with a warm compiler cache: scripts/presubmit.sh [BASE]
#
# In a clean clone of HEAD: scripts/check.sh, the tests of the changed folders in the release build and, for those that
# have a sanitizer's label, under it, deep and cuda if their sources changed, and the README's smoke run. BASE defaults
# to origin/main, or else to the tenth commit before HEAD.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-$(git rev-parse --quiet --verify origin/main || git rev-list --first-parent --max-count=11 HEAD | tail -n 1)}
base=$(git rev-parse --verify "$base^{commit}")  # names mean something else in the clone
[[ -z $(git status --porcelain) ]] || echo "presubmit.sh: changes that are not committed are not tested" >&2

# The tests that a change of a path can break: a regular expression for ctest, after one for paths; the first match
# counts. An empty one means none of them, and ALL all of them.
tests_of() {
  case $1 in
    docs/services/* | scripts/services.sh) echo '^service_units' ;;
    scripts/make_models.py) echo '^(model_files|config|model)' ;;
    scripts/gpu_check.sh | scripts/carry.sh) echo '^gpu_' ;;
    docs/* | *.md | .ci/* | scripts/*) echo '^(include_rules|e2e\.readme|cli_job\.exit_codes)' ;;
    tests/base/* | tests/CMakeLists.txt | cmake/* | CMake* | proto/*) echo ALL ;;
    tests/torch/*) echo '^torch_' ;;
    tests/python/* | python/* | client/* | worker/program/* | common/program/* | ps/update/program*) echo '^(python_|client|e2e\.(own_)?program|e2e\.examples)' ;;
    tests/cuda/* | worker/backend/cuda/* | bench/gpu/*) ;;  # scripts/stage.sh
    tests/*/*) echo "^$(cut -d / -f 2 <<<"$1")" ;;
    common/base/*) echo '^(base|cli|ps|checkpoint|e2e\.(end|program|lost))' ;;
    common/config/* | configs/*) echo '^(config|cli|e2e\.readme|model)' ;;
    common/link/* | common/transport/*) echo '^(link|transport|job|relay|e2e\.(network|strangers|ssh))' ;;
    common/checkpoint/*) echo '^(checkpoint|job|ps|trainer|e2e\.(resume|damage|golden|best_weights))' ;;
    common/tensors/* | common/model/*) echo '^(tensors|model|checkpoint|data|e2e\.models)' ;;
    common/*) echo "^($(cut -d / -f 2 <<<"$1")|job|ps|trainer)" ;;
    ps/*) echo '^(ps|job|checkpoint|relay|protocol|e2e\.(bits|end|resume|lost))' ;;
    worker/image/* | worker/data/*) echo '^(data|image|e2e\.(photos|npz))' ;;
    worker/nn/* | worker/backend/*) echo '^(nn|backend|panel|trainer|e2e\.bits)' ;;
    worker/*) echo '^(client|relay|trainer|job|e2e\.(bits|lost|ssh))' ;;
    cli/verify/*) echo '^(cli|e2e\.verify)' ;;
    cli/trace/*) echo '^(cli|e2e\.trace)' ;;
    cli/cluster/*) echo '^(cli|e2e\.(slurm|launchers))' ;;
    cli/model/* | cli/data/*) echo '^(cli|e2e\.(models|photos|npz))' ;;
    cli/*) echo '^(cli|e2e\.(end|eval|hand|mistakes|runs|ssh|watch))' ;;
    bench/*) echo '^bench_' ;;
    examples/*) echo '^(python_torch_Examples|python_keras_Examples|e2e\.examples)' ;;
    Dockerfile | .*) ;;
    *) echo ALL ;;
  esac
}

paths=$(git diff --name-only "$base" HEAD)
if [[ -z $paths ]]; then
  echo "Nothing changed since $base."
  exit 0
fi
pattern=$(while IFS= read -r path; do tests_of "$path"; done <<<"$paths" | sort -u | paste -sd '|')
[[ $pattern != *ALL* ]] || pattern=.
changes() { grep -E "^($1)/" <<<"$paths" >/dev/null; }
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone --quiet . "$clone/muster"
cd "$clone/muster"
export CI=true
MUSTER_TEST_PYTHON=$(scripts/python_env.sh)
export MUSTER_TEST_PYTHON
cmake --preset release -Wno-dev -DMUSTER_CUDA_ARCHITECTURES=90-real >/dev/null

failed=()
stage() {
  local begin=$SECONDS
  "$@" || failed+=("$*")
  echo "-- $*: $((SECONDS - begin)) s"
}
stage scripts/check.sh "$base"
[[ -z $pattern ]] || stage scripts/test.sh release -LE 'cuda|deep' -R "$pattern"
# A sanitizer's build is worth its minutes only if what it runs has changed.
if changes 'ps|worker|common|client|proto|tests/(job|ps|transport|link|trainer|data|base)'; then
  stage scripts/test.sh tsan -L threads
fi
if changes 'cli|ps|worker|common|proto|tests/(cli|config|data|image|tensors|link|job|fuzz|base)'; then
  stage scripts/test.sh debug -L parsing
fi
stage scripts/stage.sh release deep
stage scripts/stage.sh release cuda
stage scripts/stage.sh debug cuda
stage build/release/bin/muster launch configs/smoke.txtpb --run-dir "$clone/run" --workers 2
if ((${#failed[@]})); then
  printf 'Failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "Nothing failed."
