#!/bin/sh
# What can only be seen on a card, in one go: run it on a machine with a GPU, from a build.
#   1. the driver, the card, which libraries are found
#   2. a training on the card and on the CPU: they must agree; 1 and 2 workers: the same bits
#   3. the same under compute-sanitizer, if it is there
#   4. time for the tutorial's network with batch 128 and 1,024, and for ResNet-18 with batch 512, in FP32, TF32 and
#      BF16; against PyTorch on the same card where a Python that has it is named
# Prints a table for docs/RESULTS.md. Exit code 1 if something is wrong, 2 without a card.
# Usage: scripts/gpu_check.sh [FOLDER OF THE PROGRAMS [PYTHON WITH PYTORCH]]   (default: build/release/bin, and none)
cd "$(dirname "$0")/.." || exit 2
bin=${1:-build/release/bin}
python=${2:-}
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
# The tutorial's network, and ResNet-18, on made-up images.
cat >"$work/resnet18.txtpb" <<EOF
data {
  format: SYNTHETIC
  synthetic { height: 32 width: 32 channels: 3 classes: 10 train_samples: 4096 test_samples: 0 }
  preprocess { standardize: true }
}
model_file: "$PWD/configs/models/resnet18.txtpb"
optimizer { type: MOMENTUM momentum: 0.9 }
learning_rate { base: 0.001 }
EOF
# Images per second of the launch, the median of its intervals but the first.
rate() {
  grep -oE '"images_per_second": *[0-9.]+' "$1" | sed 's/.*: *//;1d;$d' | sort -n |
    awk '{ v[NR] = $1 } END { if (NR) printf "%.0f", v[int((NR + 1) / 2)] }'
}
# time_it NETWORK CONFIG BATCH PRECISION: a row of the table.
time_it() {
  network=$1 config=$2 batch=$3 precision=$4
  run="$work/t-$network-$batch-$precision"
  timeout 300 "$bin/muster" launch "$config" --run-dir "$run" --workers 1 --steps 220 \
    --set data.format=SYNTHETIC --set evaluation.every_epochs=0 --set evaluation.skip_final=true \
    --set "run.global_batch=$batch" --set run.log_every_steps=20 --set learning_rate.base=0.001 \
    --set worker.backend=CUDA --set worker.soft_placement=false --set "worker.precision=$precision" \
    >"$work/t.log" 2>&1 || { fail "$network, batch $batch, $precision: $(tail -n 3 "$work/t.log")"; return; }
  ours=$(rate "$run/metrics.jsonl") theirs='' ratio=''
  if [ -n "$python" ]; then
    if theirs=$(timeout 300 "$python" bench/peers/one_card.py --model "$network" --batch "$batch" \
      --precision "$precision" 2>"$work/torch.log"); then
      ratio=$(awk "BEGIN { printf \"%.2f\", $ours / $theirs }")
    else
      fail "PyTorch, $network, batch $batch, $precision: $(tail -n 3 "$work/torch.log")"
    fi
  fi
  echo "| $network | $batch | $precision | $ours | $theirs | $ratio |"
}
[ -n "$python" ] || echo "no Python with PyTorch was named: not compared"
echo "| network | batch | precision | images/s | PyTorch | ratio |"
echo "|---|---|---|---|---|---|"
for precision in FP32 TF32 BF16; do
  for batch in 128 1024; do time_it tutorial configs/cifar10.txtpb "$batch" "$precision"; done
  time_it resnet18 "$work/resnet18.txtpb" 512 "$precision"
done
exit $status
