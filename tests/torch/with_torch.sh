#!/bin/sh
# Runs a Python script with the Python that has PyTorch: the first argument, or $MUSTER_TORCH_PYTHON, or
# python3. Exit code 77 where there is none.
python=${1:-${MUSTER_TORCH_PYTHON:-python3}}
shift
if ! command -v "$python" >/dev/null; then
  echo "skipped: no $python: set MUSTER_TORCH_PYTHON to a Python that has PyTorch and safetensors"
  exit 77
fi
exec "$python" "$@"
