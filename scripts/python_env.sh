#!/usr/bin/env bash
# Prints the path of a Python that has what the Python tests need (MUSTER_TEST_PYTHON):
#
#   scripts/python_env.sh [--oldest | --release | --find]
#
# Installs python/requirements-ci.txt into the user's cache (about 7 GB and five minutes, once per machine and list);
# --oldest installs python/requirements-oldest.txt instead, and --release the tools of scripts/wheel.sh. --find
# installs nothing: it prints the installed one, otherwise the first python3 of the PATH that has NumPy; exit code 1 if
# there is none.
set -euo pipefail
cd "$(dirname "$0")/.."

list=python/requirements-ci.txt
case ${1:-} in
  --oldest | --release) list=python/requirements-${1#--}.txt ;;
esac
# Debian's own Python first: others on the PATH may come without the modules that venv needs.
base=python3
[[ -x /usr/bin/python3 ]] && base=/usr/bin/python3
command -v "$base" >/dev/null || exit 1
id=$({ cat "$list"; "$base" --version; } | sha256sum | cut -c 1-16)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/muster/python-$id
python=$folder/bin/python

if [[ ! -e $folder/complete && ${1:-} == --find ]]; then
  while IFS= read -r found; do
    if "$found" -c 'import numpy' 2>/dev/null; then
      echo "$found"
      exit 0
    fi
  done < <(type -ap python3)
  exit 1
fi
if [[ ! -e $folder/complete ]]; then
  mkdir -p "$folder"
  exec 9>"$folder.lock"
  flock 9  # somebody else may be installing
fi
if [[ ! -e $folder/complete ]]; then
  echo "Installing $list in $folder (about five minutes) ..." >&2
  "$base" -m venv --clear "$folder" >&2
  # The newest list is complete. The oldest one names only what matters.
  options=()
  [[ $list == *-ci.txt ]] && options=(--no-deps)
  "$python" -m pip install --quiet --no-compile --disable-pip-version-check "${options[@]}" -r "$list" >&2
  touch "$folder/complete"
fi
echo "$python"
