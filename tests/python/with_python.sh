#!/bin/sh
# Runs a script with $MUSTER_TEST_PYTHON, or with python3. Exit code 77 if there is none.
python=${MUSTER_TEST_PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
  echo "skipped: no Python"
  exit 77
fi
exec "$python" "$@"
