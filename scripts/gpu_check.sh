#!/bin/sh
# What can only be seen on a card, in one go: run it on a machine with a GPU, in the source tree, from a build or
# with the folder bin of a package that has the CUDA backend beside it (docs/CUDA.md).
#   1. the driver, the card, which libraries are found, what `muster gpus --check` says
#   2. every layer, forward and back, against plain loops on the CPU (card_test, of a build), with cuDNN and without
#   3. trainings on the card and on the CPU, which must agree; two runs, and 1 and 2 workers: the same bits
#   4. the same under compute-sanitizer, if it is there
#   5. time for the tutorial's network with batch 128 and 1,024, and for ResNet-18 with batch 512, in FP32, TF32 and
#      BF16; against PyTorch on the same card where a Python that has it is named. Its CUDA libraries are used, too,
#      where the system has none
# Prints tables for docs/RESULTS.md. Exit code 1 if something is wrong, which is listed at the end, 2 without a card.
# Usage: scripts/gpu_check.sh [--quick] [FOLDER OF THE PROGRAMS [PYTHON WITH PYTORCH]]
#        --quick: short measurements, to try the script   (default: build/release/bin, and no PyTorch)
steps=220
if [ "$1" = --quick ]; then
  steps=60
  shift
fi
cd "$(dirname "$0")/.." || exit 2
bin=${1:-build/release/bin}
python=${2:-}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
# In a file: most of what fails does so in a subshell.
fail() { echo "FAILED: $*" | tee -a "$work/failed" >&2; }
# The end of a log, in a line.
end_of() { tail -n 3 "$1" | tr '\n' ' '; }

[ -x "$bin/muster" ] || { echo "no $bin/muster: build first (scripts/build.sh release)"; exit 2; }
# Where NVIDIA's installers leave nvidia-smi and compute-sanitizer.
PATH=$PATH:/usr/local/cuda/bin:/usr/lib/wsl/lib

# 1.
nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv 2>/dev/null ||
  echo "no nvidia-smi, or it finds no driver: only Muster says what there is"
has() { ldconfig -p 2>/dev/null | grep -qF "$1 (" || find_in_path "$1"; }
find_in_path() {
  echo "$LD_LIBRARY_PATH" | tr : '\n' | while read -r folder; do ls "$folder/$1" 2>/dev/null; done | grep -q .
}
# The CUDA backend wants the cuBLAS of the CUDA that it was built with: 12's is of no use to 13.
cublas=$(grep -haoE 'libcublas\.so\.[0-9]+' "$bin/libmuster_cuda.so" "$bin/../lib/libmuster_cuda.so" 2>/dev/null | head -n 1)
: "${cublas:=libcublas.so}"
if [ -n "$python" ]; then
  packages=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])') ||
    { echo "$python does not run"; exit 2; }
  for library in "$cublas" libcudnn.so.9; do
    has "$library" && continue
    for found in "$packages"/nvidia/*/lib/"$library"; do
      [ -e "$found" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${found%/*}
    done
  done
  export LD_LIBRARY_PATH
fi
for library in libcuda.so.1 "$cublas" "libcublasLt${cublas#libcublas}" libcudnn.so.9; do
  has "$library" || echo "not found by the loader: $library"
done
"$bin/muster" gpus --check || fail "muster gpus --check"

# train NAME SETTING...: trains; prints the last line of its metrics.
train() {
  name=$1
  shift
  words=
  for setting in "$@"; do words="$words --set $setting"; done
  # shellcheck disable=SC2086 # words on purpose, here and below
  timeout 300 "$bin/muster" launch configs/smoke.txtpb --run-dir "$work/$name" $words \
    >"$work/$name.log" 2>&1 || { fail "$name: $(end_of "$work/$name.log")"; return 1; }
  tail -n 1 "$work/$name/metrics.jsonl"
}
value() { printf '%s' "$2" | grep -oE "\"$1\": *\"?[^,}\"]*" | sed 's/.*[: "]//'; }
on_card() {
  name=$1
  shift
  train "$name" worker.backend=CUDA worker.soft_placement=false "$@"
}
same_bits() {
  [ "$(value weights_hash "$2")" = "$(value weights_hash "$3")" ] || fail "$1: other bits"
}

# The first one says whether there is a card at all.
one=$(on_card card-1 cluster.workers=1 run.slices=2) || exit 2
grep -h "Computing on" "$work/card-1.log"

# 2.
if [ -x "$bin/card_test" ]; then
  for convolution in AUTO GEMM; do
    MUSTER_CARD_TEST=$convolution timeout 900 "$bin/card_test" >"$work/cases.log" 2>&1 ||
      fail "card_test, $convolution: $(grep -h 'FAILED' "$work/cases.log" | tail -n 5 | tr '\n' ' ')"
    grep -h '^skipped: ' "$work/cases.log" && fail "card_test, $convolution: found no card"
    echo "layers, convolutions $convolution: $(grep -hE '^\[  (PASSED|FAILED) ' "$work/cases.log" | head -n 2 | tr '\n' ' ')"
  done
else
  echo "no $bin/card_test: layers are not compared one by one (a package has none; a build does)"
fi

# 3.
if two=$(on_card card-2 cluster.workers=2 run.slices=2); then same_bits "1 and 2 workers" "$one" "$two"; fi
if again=$(on_card card-3 cluster.workers=1 run.slices=2); then same_bits "two runs" "$one" "$again"; fi
if tuned=$(on_card tuned-1 cluster.workers=1 run.slices=2 worker.autotune=true); then
  echo "with worker.autotune: $(grep -hoE 'timed .*' "$work/tuned-1/worker-0.log" | head -n 1)"
fi
cpu=$(train cpu cluster.workers=1 run.slices=2) || exit 1
echo "| convolutions | precision | test loss | accuracy |"
echo "|---|---|---|---|"
# row CONVOLUTIONS PRECISION METRICS: also whether the loss is the CPU's, but for rounding.
row() {
  loss=$(value test_loss "$3") expected=$(value test_loss "$cpu")
  echo "| $1 | $2 | $loss | $(value test_accuracy "$3") |"
  awk "BEGIN { d = $loss - $expected; exit !(d * d <= 0.05 * 0.05) }" ||
    fail "$1, $2: a test loss of $loss; the CPU has $expected"
}
row "on the CPU" FP32 "$cpu"
for convolution in GEMM AUTO; do
  for precision in FP32 TF32 BF16; do
    if metrics=$(on_card "$convolution-$precision" "worker.convolution=$convolution" "worker.precision=$precision"); then
      row "$convolution" "$precision" "$metrics"
    fi
  done
done
[ -z "$tuned" ] || row autotune FP32 "$tuned"

# 4. Everything takes a hundred times as long, the first load of the libraries included.
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    timeout 1200 compute-sanitizer --tool $tool --target-processes all --error-exitcode 9 "$bin/muster" \
      launch configs/smoke.txtpb --run-dir "$work/$tool" --workers 1 --steps 2 \
      --set run.slices=2 --set worker.backend=CUDA --set worker.soft_placement=false \
      --set evaluation.every_epochs=0 --set evaluation.skip_final=true --set deadlines.start_s=600 \
      --set deadlines.first_step_s=900 --set deadlines.step_s=600 --set deadlines.silence_s=120 \
      >"$work/$tool.log" 2>&1 || fail "compute-sanitizer $tool: $(end_of "$work/$tool.log")"
    echo "compute-sanitizer $tool: $(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$work/$tool.log" | sort -u | tr '\n' ' ')"
  done
else
  echo "no compute-sanitizer: not run"
fi

# 5.
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
  timeout 600 "$bin/muster" launch "$config" --run-dir "$run" --workers 1 --steps "$steps" \
    --set data.format=SYNTHETIC --set evaluation.every_epochs=0 --set evaluation.skip_final=true \
    --set "run.global_batch=$batch" --set run.log_every_steps=20 --set learning_rate.base=0.001 \
    --set worker.backend=CUDA --set worker.soft_placement=false --set "worker.precision=$precision" \
    >"$work/t.log" 2>&1 || { fail "$network, batch $batch, $precision: $(end_of "$work/t.log")"; return; }
  ours=$(rate "$run/metrics.jsonl") theirs='' ratio=''
  if [ -z "$ours" ]; then
    fail "$network, batch $batch, $precision: no speed in $run/metrics.jsonl"
    return
  fi
  if [ -n "$python" ]; then
    if theirs=$(timeout 300 "$python" bench/peers/one_card.py --model "$network" --batch "$batch" \
      --precision "$precision" 2>"$work/torch.log"); then
      ratio=$(awk "BEGIN { printf \"%.2f\", $ours / $theirs }")
    else
      theirs=''
      fail "PyTorch, $network, batch $batch, $precision: $(end_of "$work/torch.log")"
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
[ -e "$work/failed" ] || exit 0
echo "What failed:"
cat "$work/failed"
exit 1
