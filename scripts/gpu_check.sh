#!/bin/sh
# What can only be seen on a card, in one go: run it on a machine with a GPU, from a build.
#   1. the driver, the card, which libraries are found
#   2. a training on the card and on the CPU: they must agree; 1 and 2 workers: the same bits
#   3. the same under compute-sanitizer, if it is there
#   4. time for the tutorial's network with batch 128 and 1,024, in FP32, TF32 and BF16
# Prints a table for docs/RESULTS.md. Exit code 1 if something is wrong, 2 without a card.
# Usage: scripts/gpu_check.sh [FOLDER OF THE PROGRAMS]   (default: build/release/bin)
cd "$(dirname "$0")/.." || exit 2
bin=${1:-build/release/bin}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
status=0
fail() { echo "FAILED: $*"; status=1; }

command -v nvidia-smi >/dev/null || { echo "no nvidia-smi: is there a driver?"; exit 2; }
nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv || exit 2
[ -x "$bin/muster" ] || { echo "no $bin/muster: build first"; exit 2; }
echo "libraries: $(ldconfig -p | grep -oE 'lib(cublas|cublasLt|cudnn)\.so\.[0-9]+' | sort -u | tr '\n' ' ')"

# train NAME SETTING...: trains; prints the last line of its metrics.
train() {
  name=$1
  shift
  words=
  for setting in "$@"; do words="$words --set $setting"; done
  # shellcheck disable=SC2086 # words on purpose, here and below
  timeout 300 "$bin/muster" launch configs/smoke.txtpb --run-dir "$work/$name" $words \
    >"$work/$name.log" 2>&1 || { fail "$name: $(tail -n 3 "$work/$name.log")"; return 1; }
  tail -n 1 "$work/$name/metrics.jsonl"
}
value() { printf '%s' "$2" | grep -oE "\"$1\": *\"?[^,}\"]*" | sed 's/.*[: "]//'; }
on_card() {
  name=$1
  shift
  train "$name" worker.backend=CUDA worker.soft_placement=false "$@"
}

# 2.
one=$(on_card card-1 cluster.workers=1 run.slices=2) || exit 1
two=$(on_card card-2 cluster.workers=2 run.slices=2) || exit 1
cpu=$(train cpu cluster.workers=1 run.slices=2) || exit 1
[ "$(value weights_hash "$one")" = "$(value weights_hash "$two")" ] || fail "1 and 2 workers: other bits"
again=$(on_card card-3 cluster.workers=1 run.slices=2)
[ "$(value weights_hash "$one")" = "$(value weights_hash "$again")" ] || fail "two runs: other bits"
echo "loss on the card $(value train_loss "$one"), on the CPU $(value train_loss "$cpu")"
for convolution in GEMM AUTO; do
  for precision in FP32 TF32 BF16; do
    on_card "$convolution-$precision" "worker.convolution=$convolution" "worker.precision=$precision" >/dev/null
  done
done

# 3.
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    timeout 600 compute-sanitizer --tool $tool --target-processes all --error-exitcode 9 "$bin/muster" \
      launch configs/smoke.txtpb --run-dir "$work/$tool" --workers 1 --steps 2 \
      --set worker.backend=CUDA --set worker.soft_placement=false >"$work/$tool.log" 2>&1 ||
      fail "compute-sanitizer $tool: $(tail -n 3 "$work/$tool.log")"
  done
else
  echo "no compute-sanitizer: not run"
fi

# 4.
echo "| batch | precision | images/s |"
echo "|---|---|---|"
for batch in 128 1024; do
  for precision in FP32 TF32 BF16; do
    timeout 300 "$bin/muster" launch configs/cifar10.txtpb --run-dir "$work/t-$batch-$precision" --workers 1 \
      --steps 200 --set data.format=SYNTHETIC --set run.global_batch=$batch --set evaluation.every_epochs=0 \
      --set worker.backend=CUDA --set worker.soft_placement=false --set worker.precision=$precision \
      >"$work/t.log" 2>&1 || { fail "batch $batch $precision: $(tail -n 3 "$work/t.log")"; continue; }
    echo "| $batch | $precision | $(grep -oE '[0-9,]+ images/s' "$work/t.log" | tail -n 1) |"
  done
done
exit $status
