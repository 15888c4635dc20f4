#!/usr/bin/env bash
# Trains a convolutional network on CIFAR-10 on this machine, with one server and a worker per core. Installs
# missing packages, builds, downloads the data (170 MB), trains for a few minutes, and shows the accuracy.
#
#   scripts/demo.sh [muster launch options, for example --epochs 2]
#
# Uses CIFAR-10 from $MUSTER_DATA or data/ if it is there, otherwise the published archive, or, offline, a
# procedural image set in the same layout.
set -euo pipefail
cd "$(dirname "$0")/.."

has_data() { [[ -f $1/data_batch_1.bin || -f $1/cifar-10-batches-bin/data_batch_1.bin ]]; }
if [[ -n ${MUSTER_DATA:-} ]] && ! has_data "$MUSTER_DATA"; then
  echo "$0: MUSTER_DATA: expected data_batch_1.bin (CIFAR-10's binary version) in $MUSTER_DATA," \
    "found none; unset it to download the data" >&2
  exit 2
fi

echo "The first run takes about 2 GB of disk space and a few minutes."
scripts/setup.sh
echo "Building build/release ..."
scripts/build.sh release muster muster-server muster-worker muster_client_library
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
  # A failed download is no error of this script: there is another set to train on.
  if "$muster" data get cifar10 data/cifar10 2>&1 | tee "$reason" |
    { grep --line-buffered -v '^muster: error:' || true; }; then
    data=data/cifar10
    echo "Data: CIFAR-10, downloaded to $data."
  else
    data=data/synthetic
    has_data "$data" || "$muster" data synth "$data"
    echo "Data: synthetic images in $data, because CIFAR-10 cannot be downloaded:"
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

Next steps:
  export PATH=\$PATH:$PWD/build/release/bin
  muster runs                             lists all runs with their accuracy
  muster launch configs/cifar10.txtpb --data $data --set learning_rate.base=0.1
  muster launch --help
END
