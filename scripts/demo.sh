#!/usr/bin/env bash
# Trains a convolutional network on CIFAR-10 on this machine, with one server and a worker per core:
# installs what is missing, builds, gets the data, trains for a few minutes, shows the accuracy.
#
#   scripts/demo.sh [muster launch options, for example --epochs 2]
#
# The data: $MUSTER_DATA or data/ where CIFAR-10 lies there, else the publisher's archive, else
# (offline) a procedural image set in the same layout.
set -euo pipefail
cd "$(dirname "$0")/.."

has_data() { [[ -f $1/data_batch_1.bin || -f $1/cifar-10-batches-bin/data_batch_1.bin ]]; }
if [[ -n ${MUSTER_DATA:-} ]] && ! has_data "$MUSTER_DATA"; then
  echo "$0: MUSTER_DATA: expected data_batch_1.bin (CIFAR-10's binary version) in $MUSTER_DATA," \
    "found none; unset it, and the data are downloaded" >&2
  exit 2
fi

scripts/setup.sh
echo "Building build/release (the first time takes a few minutes) ..."
scripts/build.sh release muster muster-server muster-worker
muster=build/release/bin/muster

if [[ -n ${MUSTER_DATA:-} ]]; then
  data=$MUSTER_DATA
  echo "Data: CIFAR-10 in $data."
elif has_data data/cifar10; then
  data=data/cifar10
  echo "Data: CIFAR-10 in $data."
elif "$muster" data get cifar10 data/cifar10; then
  data=data/cifar10
  echo "Data: CIFAR-10, downloaded to $data."
else
  data=data/synthetic
  has_data "$data" || "$muster" data synth "$data"
  echo "Data: CIFAR-10 could not be downloaded; training on the procedural image set in $data."
fi

length=(--epochs 5)
[[ " $* " =~ \ --(epochs|steps)[\ =] ]] && length=()
exec "$muster" launch configs/cifar10.txtpb --data "$data" "${length[@]}" "$@"
