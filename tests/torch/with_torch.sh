#!/bin/sh
# Runs a Python script with a Python that has PyTorch: the first argument, $MUSTER_TORCH_PYTHON, or
# python3. Exit code 77 if there is none.
python=${1:-${MUSTER_TORCH_PYTHON:-python3}}
shift
if ! command -v "$python" >/dev/null; then
  echo "skipped: no $python: set MUSTER_TORCH_PYTHON to a Python that has PyTorch and safetensors"
  exit 77
fi
exec "$python" "$@"
