#!/usr/bin/env bash
# Reads the events of a real run with TensorBoard. Exit code 77 (skipped) if TensorBoard is not
# installed. The Python is $MUSTER_TEST_PYTHON, or python3.
# Usage: tensorboard_test.sh MUSTER CONFIG
set -euo pipefail
muster=$1 config=$2 python=${MUSTER_TEST_PYTHON:-python3}
if ! "$python" -c 'import tensorboard.backend' 2>/dev/null; then
  echo "skipped: No module named 'tensorboard'"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$muster" launch "$config" --run-dir "$folder/run" --workers 2 --set tensorboard.graph=true \
  --set tensorboard.hparams=true --set tensorboard.config_text=true --set tensorboard.images=3 \
  --set tensorboard.histograms_every_steps=40 >"$folder/log" || { cat "$folder/log" >&2; exit 1; }
"$python" "$(dirname "$0")/tensorboard_test.py" "$folder/run"
