#!/usr/bin/env bash
# Trains a convolutional network on CIFAR-10 on this machine, with one server and a worker per core:
# installs what is missing, builds, gets the data (a download of 170 MB), trains for a few minutes, shows
# the accuracy.
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

echo "The first time, this takes about 2 GB of disk and a few minutes."
scripts/setup.sh
echo "Building build/release ..."
scripts/build.sh release muster muster-server muster-worker
muster=build/release/bin/muster

if [[ -n ${MUSTER_DATA:-} ]]; then
  data=$MUSTER_DATA
  echo "Data: CIFAR-10 in $data."
elif has_data data/cifar10; then
  data=data/cifar10
  echo "Data: CIFAR-10 in $data."
else
  reason=$(mktemp)
  trap 'rm -f "$reason"' EXIT
  # Its errors are not this script's: there is another set to train on.
  if "$muster" data get cifar10 data/cifar10 2>&1 | tee "$reason" |
    { grep --line-buffered -v '^muster: error:' || true; }; then
    data=data/cifar10
    echo "Data: CIFAR-10, downloaded to $data."
  else
    data=data/synthetic
    has_data "$data" || "$muster" data synth "$data"
    echo "Data: made-up images in $data, not CIFAR-10, which cannot be downloaded:"
    sed -n 's/^muster: error: cannot download the data set: \(.*\)\. Run this again.*/  \1/p' "$reason"
  fi
fi

run=()
[[ $data != data/synthetic ]] || run=(--run-dir "runs/made-up-images-$(date +%Y%m%d-%H%M%S)")
[[ " $* " =~ \ --run-dir[\ =] ]] && run=()
length=(--epochs 5)
[[ " $* " =~ \ --(epochs|steps)[\ =] ]] && length=()
"$muster" launch configs/cifar10.txtpb --data "$data" "${run[@]}" "${length[@]}" "$@"

cat <<END

What next:
  export PATH=\$PATH:$PWD/build/release/bin
  muster runs                             all runs, with their accuracy
  muster launch configs/cifar10.txtpb --data $data --set learning_rate.base=0.1
  muster launch --help
END
