#!/usr/bin/env bash
# Runs the static checks: formatting, includes, words, mutants (each still names one place of the sources), shell
# scripts, and clang-tidy on changed sources.
#
#   scripts/check.sh [--all] [BASE]
#
# clang-tidy takes seconds per source, so it checks only sources that changed since BASE (a commit); --all checks
# every source. It skips those that it found clean before (scripts/tidy_source.py). BASE defaults to the commit where
# this branch left main or, on main itself, to the tenth commit before. Exit code 1 if anything is found or a tool is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly preset=release  # clang-tidy uses its compile commands
all=false
[[ ${1:-} == --all ]] && all=true && shift
base=${1:-}
failed=()

# run NAME COMMAND ...: continues after a finding, so that one run shows all findings.
run() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}

# tracked PATTERN ...: tracked files that exist; git ls-files alone also lists deleted ones.
tracked() {
  local file
  while IFS= read -r file; do
    if [[ -f $file ]]; then echo "$file"; fi
  done < <(git ls-files -- "$@")
}

formatting() {
  # Other versions format differently.
  local tool version
  for tool in clang-format-14 clang-format; do
    version=$("$tool" --version 2>/dev/null | grep -oE 'version [0-9]+' || true)
    [[ $version == "version 14" ]] && break
  done
  if [[ $version != "version 14" ]]; then
    echo "clang-format 14 is missing (found: ${version:-none}). Debian 12 has it, scripts/setup.sh --checks" \
         "installs it; elsewhere: pip install clang-format==14.0.6" >&2
    return 1
  fi
  tracked '*.cc' '*.h' '*.inc' | xargs "$tool" --dry-run -Werror
}

shell_scripts() {
  local scripts script status=0
  mapfile -t scripts < <(tracked '*.sh' .ci/run)
  for script in "${scripts[@]}"; do bash -n "$script" || status=1; done
  if ! command -v shellcheck >/dev/null; then
    echo "shellcheck is missing: scripts/setup.sh --checks" >&2
    return 1
  fi
  shellcheck "${scripts[@]}" || status=1
  return $status
}

default_base() {
  local main fork
  for main in origin/main main; do
    fork=$(git merge-base "$main" HEAD 2>/dev/null) || continue
    [[ $fork == "$(git rev-parse HEAD)" ]] || { echo "$fork"; return; }
  done
  # HEAD is on main, or there is no main. A young or shallow history may have fewer than ten commits.
  git rev-list --first-parent --max-count=11 HEAD | tail -n 1
}

# The sources that changed since $base, including uncommitted ones, the newest first. A changed header
# stands for the source with the same name.
changed_sources() {
  local file
  { git diff --name-only HEAD
    git ls-files --others --exclude-standard
    git log --format= --name-only "$base..HEAD"
  } | sed -nE 's/\.(h|cc)$/.cc/p' | awk '!seen[$0]++' |
    while IFS= read -r file; do [[ -f $file ]] && echo "$file"; done || true
}

tidy() {
  if ! command -v clang-tidy >/dev/null; then
    echo "clang-tidy is missing: scripts/setup.sh --checks" >&2
    return 1
  fi
  local sources
  if $all; then
    mapfile -t sources < <(tracked '*.cc')
    echo "all ${#sources[@]} sources"
  else
    base=${base:-$(default_base)}
    git rev-parse --quiet --verify "$base^{commit}" >/dev/null || {
      echo "BASE: '$base' is not a commit of this repository" >&2
      return 1
    }
    mapfile -t sources < <(changed_sources)
    echo "${#sources[@]} sources changed since $(git log -1 --format='%h %s' "$base")"
  fi
  ((${#sources[@]})) || return 0
  # clang-tidy needs the headers that the build generates.
  scripts/build.sh "$preset" muster_proto cuda_sources_header || return 1
  # Configures compile commands for single sources, which use the generated headers of the build. clang cannot
  # read GCC's precompiled headers, so they are removed.
  cmake --preset "$preset" -B build/tidy -DMUSTER_UNITY=OFF -Wno-dev >/dev/null || return 1
  sed -i -e 's/ -Winvalid-pch -include [^ ]*//' -e "s|/build/tidy/proto|/build/$preset/proto|g" \
    -e "s|-isystem $PWD/build/tidy |-isystem $PWD/build/$preset |g" \
    -e "s|/build/tidy/\([^ ]*\)/made |/build/$preset/\1/made |g" build/tidy/compile_commands.json
  printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 1 scripts/tidy_source.py
}

scripts/setup.sh --checks
run formatting formatting
run includes scripts/check_includes.sh
run words scripts/check_words.py
run mutants tests/simulation/mutants.py --check build
run "shell scripts" shell_scripts
run clang-tidy tidy
if ((${#failed[@]})); then
  echo "Findings in: $(printf '%s; ' "${failed[@]}" | sed 's/; $//')" >&2
  exit 1
fi
echo "Nothing found."
