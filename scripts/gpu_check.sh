#!/bin/sh
# Tests and measures what needs a GPU, in stages. Runs from a build in the source tree, or from the folder of
# scripts/carry.sh:
#
#   gpu_check.sh --stage N --out DIR [--budget SECONDS] [--python PYTHON] [--bin FOLDER] [--rows FILE]
#
#   1  3 min  properties of the machine (gpu_probe, muster doctor), a first training, costs of calls
#   2  8 min  every layer against plain loops (card_test), with cuDNN and without; trainings: the same bits from
#             1 and 2 workers and from two runs, also beside another process on the GPU, and of a PyTorch program;
#             losses in FP32, TF32 and BF16 compared with the CPU
#   3  8 min  cuDNN's convolutions, and Muster's own kernels compared with a copy (gpu_bench)
#   4  8 min  images per second compared with PyTorch on the same GPU, and of a PyTorch program in a job
#   5  8 min  a part of card_test under compute-sanitizer
#   6  8 min  a profile (ncu) of the five slowest kernels of stage 3, relative to a copy
#   7  8 min  several GPUs: how they are connected, copies between them, the same bits, sums between them with and
#             without MPS, images per second
#
# A stage writes DIR/stage-N.md row by row and DIR/stage-N.log; stage 1 also DIR/cudnn_device.json. Copies of the
# tables stay beside the programs, in gpu_check, for later stages where DIR is emptied between commands. When its
# budget (default: the minutes above) is used up, it starts nothing new. It ends with one line: "stage N: passed",
# "stage N: FAILED: ...", "stage N: not run: ..." or "stage N: incomplete: ...". Exit codes: 0, 1, 2, 3.
#
# The programs of the folder of scripts/carry.sh are unpacked in the user's cache, so that the folder stays as it is.
# --rows: stage 3's table, for stage 6 (default: DIR/stage-3.md, or else the copy beside the programs).
# --bin: the programs (default: those next to this script, or build/release/bin). --python: a Python with
# PyTorch (default: the first of python3 and /opt/torch/.venv/bin/python3 that has it). Its CUDA libraries are
# used if the system has none.
usage() { sed -n '2,6s/^# \{0,1\}//p' "$0"; echo "gpu_check.sh: $*"; exit 2; } >&2
stage='' out='' budget='' python='' bin='' rows=''
while [ $# -gt 0 ]; do
  [ $# -gt 1 ] || usage "$1: expected a value"
  case $1 in
    --stage) stage=$2 ;;
    --out) out=$2 ;;
    --budget) budget=$2 ;;
    --python) python=$2 ;;
    --bin) bin=$2 ;;
    --rows) rows=$2 ;;
    *) usage "unknown option $1" ;;
  esac
  shift 2
done
case $stage in [1-7]) ;; *) usage "--stage: expected 1 to 7, found '$stage'" ;; esac
[ -n "$out" ] || usage "--out: expected a folder"
case $budget in
  '') budget=480; [ "$stage" = 1 ] && budget=180 ;;
  *[!0-9]*) usage "--budget: expected seconds, found '$budget'" ;;
esac
end_time=$(($(date +%s) + budget))
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd) || exit 2
[ -z "$bin" ] || bin=$(cd "$bin" && pwd) || exit 2
[ -z "$rows" ] || { [ -s "$rows" ] && rows=$(readlink -f "$rows"); } || usage "--rows: expected a table, found '$rows'"
case $python in */*) python=$(cd "${python%/*}" && pwd)/${python##*/} || exit 2 ;; esac

# Change to the folder with configs and bench/peers.
cd "$(dirname "$0")" || exit 2
if [ -f programs.tar.gz ]; then
  unpacked=${XDG_CACHE_HOME:-${HOME:-$PWD}/.cache}/muster/carry-$(cksum <programs.tar.gz | tr ' ' -)
  [ -d "$unpacked" ] || {
    mkdir -p "$unpacked.part" && tar -xzf programs.tar.gz -C "$unpacked.part" && mv "$unpacked.part" "$unpacked"
  } || exit 2
  export MUSTER_GOLDEN_DIR="$PWD/golden"
  : "${bin:=$unpacked/bin}"
else
  cd .. || exit 2
  : "${bin:=$PWD/build/release/bin}"
fi
export MUSTER_PROGRAMS="$bin" PYTHONPATH="$PWD/python"
commit=$(cat commit 2>/dev/null || git rev-parse HEAD 2>/dev/null)
kept=${bin%/*}/gpu_check
work=$(mktemp -d) || exit 2
# MPS of stage 7, not that of others.
end_mps() {
  [ -d "$work/mps" ] || return
  echo quit | CUDA_MPS_PIPE_DIRECTORY="$work/mps" timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
}
trap 'end_mps; rm -rf "$work"' EXIT
trap 'exit 2' INT TERM HUP
table=$out/stage-$stage.md log=$out/stage-$stage.log
: >"$table"
: >"$log"

# Failures are recorded in files, because most of them happen in subshells.
fail() { echo "$*" >>"$work/failed"; echo "FAILED: $*" >>"$table"; }
late() { echo "$*" >>"$work/late"; }
not_run() { echo "stage $stage: not run: $*" | tee -a "$table"; exit 2; }
say() { echo "$*" | tee -a "$table"; }
left() { echo $((end_time - $(date +%s))); }
# has_time SECONDS WHAT: if less time is left, records that and returns false.
has_time() { [ "$(left)" -ge "$1" ] || { late "$2"; return 1; }; }
# limited SECONDS COMMAND...: runs the command with a time limit, within the budget.
limited() {
  seconds=$1
  shift
  [ "$(left)" -gt "$seconds" ] || seconds=$(left)
  [ "$seconds" -gt 0 ] || return 124
  echo "\$ $*" >>"$log"
  timeout -k 5 "$seconds" "$@"
}
# tabled WHAT SECONDS COMMAND...: appends the output of the command to the table.
tabled() {
  what=$1 seconds=$2
  shift 2
  has_time 10 "$what" || return 1
  say ""
  { limited "$seconds" "$@" 2>>"$log"; echo $? >"$work/code"; } | tee -a "$table"
  code=$(cat "$work/code")
  [ "$code" = 0 ] && return 0
  if at_budget "$code"; then late "the rest of $what"; else fail "$what: exit code $code: $(tail -n 1 "$log")"; fi
  return 1
}
# Whether a command ended with this exit code because the budget was used up, and not its own time limit.
at_budget() { case $1 in 124 | 137) [ "$(left)" -le 0 ] ;; *) false ;; esac }
# The end of a log, in one line.
end_of() { tail -n 3 "$1" | tr '\n' ' '; }

# NVIDIA's installers put their tools here.
PATH=$PATH:/usr/local/cuda/bin:/usr/lib/wsl/lib
[ -z "$commit" ] || echo "commit $commit" >>"$log"
for program in muster gpu_probe; do
  [ -x "$bin/$program" ] || not_run "$bin/$program is missing; scripts/build.sh release builds it if nvcc is installed"
done
found=$(timeout 60 "$bin/gpu_probe" --parts find 2>&1) || not_run "$(echo "$found" | tail -n 1)"

if [ -z "$python" ]; then
  for python in python3 /opt/torch/.venv/bin/python3 ''; do
    # Importing it takes seconds, and minutes on a cold machine.
    [ -z "$python" ] || "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' \
      2>/dev/null && break
  done
fi
# The CUDA backend needs the cuBLAS of the same major version as the CUDA that it was built with.
cublas=$(grep -haoE 'libcublas\.so\.[0-9]+' "$bin/libmuster_cuda.so" "$bin/../lib/libmuster_cuda.so" 2>/dev/null | head -n 1)
: "${cublas:=libcublas.so.13}"
has() {
  ldconfig -p 2>/dev/null | grep -qF "$1 (" && return
  echo "$LD_LIBRARY_PATH" | tr : '\n' | while read -r folder; do [ -e "$folder/$1" ] && echo; done | grep -q .
}
packages=''
[ -z "$python" ] || packages=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
for library in "$cublas" libcudnn.so.9; do
  has "$library" && continue
  for file in /usr/local/cuda/lib64/"$library" "$packages"/nvidia/*/lib/"$library"; do
    [ -e "$file" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${file%/*} && break
  done
done
export LD_LIBRARY_PATH
for library in "$cublas" libcudnn.so.9; do
  has "$library" || say "not found: $library (searched the system, /usr/local/cuda and ${python:-no Python})"
done

# train NAME SETTING...: trains, and prints the last line of the metrics.
train() {
  name=$1
  shift
  has_time 20 "$name" || return 1
  words=
  for setting in "$@"; do words="$words --set $setting"; done
  # shellcheck disable=SC2086 # words on purpose, here and below
  limited 120 "$bin/muster" launch configs/smoke.txtpb --run-dir "$work/$name" $words >"$work/$name.log" 2>&1
  code=$?
  cat "$work/$name.log" "$work/$name/worker-0.log" >>"$log" 2>/dev/null
  if at_budget $code; then late "$name"; return 1; fi
  [ $code = 0 ] || { fail "$name: exit code $code: $(end_of "$work/$name.log")"; return 1; }
  tail -n 1 "$work/$name/metrics.jsonl"
}
# program WORKERS: trains a PyTorch program, and prints the last line of the metrics.
program() {
  name=program-$1
  has_time 40 "$name" || return 1
  [ -s "$work/text" ] || cat configs/*.txtpb >"$work/text"
  limited 150 "$bin/muster" launch --run-dir "$work/$name" --workers "$1" \
    --steps 40 --set "worker.workers_per_gpu=$1" --set checkpoint.keep_last=0 -- "$python" examples/pytorch_transformer.py "$work/text" \
    >"$work/$name.log" 2>&1
  code=$?
  cat "$work/$name.log" "$work/$name/worker-0.log" >>"$log" 2>/dev/null
  if at_budget $code; then late "$name"; return 1; fi
  [ $code = 0 ] || { fail "$name: exit code $code: $(end_of "$work/$name.log")"; return 1; }
  grep -q "locked for this job" "$work/$name.log" || { fail "$name: took no GPU"; return 1; }
  tail -n 1 "$work/$name/metrics.jsonl"
}
# Whether PyTorch can use the GPU. The first import takes minutes on a cold machine.
torch_on_gpu() {
  [ -n "$python" ] && has_time 40 "PyTorch" || return
  limited 150 "$python" -c 'import torch; torch.zeros(1, device="cuda")' 2>>"$log" && return
  if at_budget $?; then late "PyTorch"; else fail "PyTorch cannot use the GPU: $(tail -n 1 "$log")"; fi
  return 1
}
value() { printf '%s' "$2" | grep -oE "\"$1\": *\"?[^,}\"]*" | sed 's/.*[: "]//;q'; }
on_gpu() {
  name=$1
  shift
  train "$name" worker.backend=CUDA worker.soft_placement=false "$@"
}

# What a worker's log says of how it computes.
notable='tested in|convolutions:|using cuBLAS|locked'

stage_1() {
  timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap,ecc.mode.current,clocks.max.sm --format=csv \
    >>"$table" 2>>"$log" || say "nvidia-smi is missing"
  tabled "muster doctor" 60 "$bin/muster" doctor configs/smoke.txtpb
  if has_time 30 "the first training" && metrics=$(on_gpu first cluster.workers=1); then
    say ""
    say "$(grep -h 'Computing on' "$work/first.log")"
    say "first training: weights hash $(value weights_hash "$metrics"), test loss $(value test_loss "$metrics")"
    grep -hE "$notable" "$work/first/worker-0.log" | tee -a "$table"
  fi
  tabled "gpu_probe" 120 "$bin/gpu_probe"
  tabled "gpu_bench launches" 60 "$bin/gpu_bench" launches --repeats 2
  # cuDNN answers questions about this GPU from it, on machines without one.
  has_time 5 "gpu_bench cudnn-device" || return
  limited 60 "$bin/gpu_bench" cudnn-device >"$out/cudnn_device.json" 2>>"$log" ||
    fail "gpu_bench cudnn-device: $(tail -n 1 "$log")"
}

same_bits() {
  hash=$(value weights_hash "$2")
  if [ -n "$hash" ] && [ "$hash" = "$(value weights_hash "$3")" ]; then
    say "| $1 | the same bits |"
  else
    fail "$1: different bits"
  fi
}
# Adds a row to the table of losses, and checks that the loss matches the CPU's up to rounding.
loss_row() {
  loss=$(value test_loss "$2") expected=$(value test_loss "$cpu")
  say "| $1 | $loss | $(value test_accuracy "$2") |"
  awk "BEGIN { d = $loss - $expected; exit !(d * d <= 0.05 * 0.05) }" ||
    fail "$1: test loss $loss; the CPU has $expected"
}
card_tests() {
  [ -x "$bin/card_test" ] || { fail "$bin/card_test is missing"; return; }
  for convolution in AUTO GEMM; do
    has_time 20 "card_test, $convolution" || continue
    MUSTER_CARD_TEST=$convolution limited 150 "$bin/card_test" >"$work/cases.log" 2>&1
    code=$?
    cat "$work/cases.log" >>"$log"
    say "card_test, convolutions $convolution: $(grep -hE '^\[  (PASSED|FAILED) |^skipped' "$work/cases.log" | head -n 2 | tr '\n' ' ')"
    if at_budget $code; then
      late "the rest of card_test, $convolution"
    elif [ $code != 0 ] || grep -q '^skipped: ' "$work/cases.log"; then
      fail "card_test, $convolution: $(grep -hE 'FAILED|skipped' "$work/cases.log" | tail -n 5 | tr '\n' ' ')"
    fi
  done
}
# Two equal trainings, one of them beside another process, which takes turns with it on the GPU and starts after it,
# because muster launch takes only GPUs on which nothing computes.
beside_another() {
  settings="cluster.workers=1 run.slices=2 run.steps=10000 checkpoint.keep_last=0"
  # shellcheck disable=SC2086
  alone=$(on_gpu gpu-6 $settings) || return
  (
    until grep -q 'omputing on' "$work/gpu-7/worker-0.log" 2>/dev/null; do
      [ ! -e "$work/gpu-7.over" ] || exit
      sleep 0.1
    done
    while limited 30 "$bin/gpu_bench" kernels --exactly relu --type FP32 --repeats 1000 >>"$log" 2>&1; do
      [ ! -e "$work/gpu-7.over" ] || exit
      echo >>"$work/turns"
    done
  ) &
  neighbour=$!
  # shellcheck disable=SC2086
  beside=$(on_gpu gpu-7 $settings)
  code=$?
  : >"$work/gpu-7.over"
  wait $neighbour
  [ $code = 0 ] || return
  turns=$(wc -l 2>/dev/null <"$work/turns") || { fail "beside another process: that did not compute meanwhile"; return; }
  same_bits "beside another process on the GPU, which measured a kernel $turns times" "$alone" "$beside"
}
stage_2() {
  card_tests
  if one=$(on_gpu gpu-1 cluster.workers=1 run.slices=2); then
    say ""
    say "| trainings | |"
    say "|---|---|"
    if two=$(on_gpu gpu-2 cluster.workers=2 worker.workers_per_gpu=2 run.slices=2); then
      same_bits "1 and 2 workers" "$one" "$two"
    fi
    if again=$(on_gpu gpu-3 cluster.workers=1 run.slices=2); then same_bits "two runs" "$one" "$again"; fi
    if single=$(on_gpu gpu-4 cluster.workers=1 run.slices=2 worker.cuda_graphs=false); then
      same_bits "with and without graphs" "$one" "$single"
    fi
  fi
  if torch_on_gpu && one=$(program 1) && two=$(program 2); then
    same_bits "a PyTorch program, 1 and 2 workers" "$one" "$two"
  fi
  if cpu=$(train cpu cluster.workers=1 run.slices=2 worker.backend=CPU); then
    say ""
    say "| device, convolutions, precision | test loss | accuracy |"
    say "|---|---|---|"
    loss_row "CPU, FP32" "$cpu"
    for convolution in GEMM AUTO; do
      for precision in FP32 TF32 BF16; do
        if metrics=$(on_gpu "$convolution-$precision" cluster.workers=1 "worker.convolution=$convolution" \
          "worker.precision=$precision"); then
          loss_row "GPU, $convolution, $precision" "$metrics"
        fi
      done
    done
  fi
  beside_another
}

stage_3() {
  tabled "cuDNN's convolutions" 240 "$bin/gpu_bench" cudnn
  tabled "kernels" 240 "$bin/gpu_bench" kernels --batch 1024
}

# The median of the images per second in all intervals except the first and the last.
rate() {
  grep -oE '"images_per_second": *[0-9.]+' "$1" | sed 's/.*: *//;1d;$d' | sort -n |
    awk '{ v[NR] = $1 } END { if (NR) printf "%.0f", v[int((NR + 1) / 2)] }'
}
# time_it NETWORK CONFIG BATCH PRECISION SLICES [GRAPHS]: adds a row to the table. SLICES "" means the default.
time_it() {
  network=$1 config=$2 batch=$3 precision=$4 slices=$5 graphs=${6:-true}
  what="$network, batch $batch, $precision, ${slices:-default} slices, graphs $graphs"
  has_time 25 "$what" || return
  run="$work/t-$network-$batch-$precision-$slices-$graphs"
  steps=220
  [ "$network" != tutorial ] || steps=4400  # its steps are short
  limited 90 "$bin/muster" launch "$config" --run-dir "$run" --workers 1 --steps $steps --set checkpoint.keep_last=0 \
    --set data.format=SYNTHETIC --set evaluation.every_epochs=0 --set evaluation.skip_final=true \
    --set "run.global_batch=$batch" --set run.log_every_steps=$((steps / 11)) --set learning_rate.base=0.001 \
    ${slices:+--set run.slices=$slices} --set worker.backend=CUDA --set worker.soft_placement=false \
    --set "worker.precision=$precision" --set "worker.cuda_graphs=$graphs" >"$work/t.log" 2>&1
  code=$?
  cat "$work/t.log" "$run/worker-0.log" >>"$log" 2>/dev/null
  if at_budget $code; then late "$what"; return; fi
  ours=$(rate "$run/metrics.jsonl" 2>/dev/null)
  if [ $code != 0 ] || [ -z "$ours" ]; then
    fail "$what: exit code $code after ${ours:-no} images/s: $(end_of "$work/t.log")"
    grep -hE "$notable" "$run/worker-0.log" 2>/dev/null | tee -a "$table"
    return
  fi
  peer=$work/torch-$network-$batch-$precision
  if [ -n "$python" ] && [ ! -e "$peer" ] && has_time 20 "PyTorch, $what"; then
    limited 90 "$python" bench/peers/one_card.py --model "$network" --batch "$batch" --precision "$precision" \
      --seconds 2 >"$peer" 2>>"$log"
    code=$?
    if at_budget $code; then
      late "PyTorch, $what"
    elif [ $code != 0 ]; then
      fail "PyTorch, $what: exit code $code: $(tail -n 1 "$log")"
    fi
  fi
  best='' default='' ratio=''
  # shellcheck disable=SC2034 # the rest of the line
  [ ! -s "$peer" ] || read -r best default rest <"$peer"
  [ -z "$best" ] || ratio=$(awk "BEGIN { printf \"%.2f\", $ours / $best }")
  say "| $network | $batch | $precision | ${slices:-default} | $graphs | $ours | $best | $default | $ratio |"
}
# The same network as a PyTorch program in a job, compared with the row above.
time_program() {
  what="resnet50 as a PyTorch program"
  [ -n "$python" ] && has_time 60 "$what" || return
  echo "run { steps: 120 global_batch: 256 slices: 1 log_every_steps: 20 } checkpoint { keep_last: 0 }" \
    >"$work/program.txtpb"
  (cd "$work" && limited 150 "$python" "$OLDPWD/bench/peers/one_card.py" --model resnet50 --batch 256 --precision BF16 \
    --muster program.txtpb) >"$work/program.log" 2>&1
  code=$?
  cat "$work/program.log" >>"$log"
  if at_budget $code; then late "$what"; return; fi
  ours=$(grep -xE '[0-9]+' "$work/program.log")
  if [ $code != 0 ] || [ -z "$ours" ]; then
    fail "$what: exit code $code: $(end_of "$work/program.log")"
    return
  fi
  ratio=''
  [ -z "$best" ] || ratio=$(awk "BEGIN { printf \"%.2f\", $ours / $best }")
  say "| $what | 256 | BF16 | 1 | | $ours | $best | $default | $ratio |"
}
# synthetic MODEL SIDE CLASSES: a config of images of this size.
synthetic() {
  cat >"$work/$1.txtpb" <<EOF
data {
  format: SYNTHETIC
  synthetic { height: $2 width: $2 channels: 3 classes: $3 train_samples: 4096 test_samples: 0 }
  preprocess { standardize: true }
}
model_file: "$PWD/configs/models/$1.txtpb"
optimizer { type: MOMENTUM momentum: 0.9 }
EOF
}
stage_4() {
  synthetic resnet18 32 10
  synthetic resnet50_imagenet 224 1000
  [ -n "$python" ] || say "not compared, because there is no Python with PyTorch"
  say "| network | batch | precision | slices | graphs | images/s | PyTorch at its best | with default settings | ratio |"
  say "|---|---|---|---|---|---|---|---|---|"
  time_it resnet50 "$work/resnet50_imagenet.txtpb" 256 BF16 1
  grep -hE "$notable" "$run/worker-0.log" >>"$log" 2>/dev/null
  time_program
  for precision in BF16 FP32 TF32; do
    for slices in 1 ''; do
      time_it tutorial configs/cifar10.txtpb 128 "$precision" "$slices"
      time_it tutorial configs/cifar10.txtpb 1024 "$precision" "$slices"
      time_it resnet18 "$work/resnet18.txtpb" 512 "$precision" "$slices"
    done
    time_it tutorial configs/cifar10.txtpb 128 "$precision" '' false
  done
}

stage_5() {
  command -v compute-sanitizer >/dev/null || not_run "compute-sanitizer is missing"
  tools=4
  for tool in memcheck racecheck initcheck synccheck; do
    share=$(($(left) / tools))
    tools=$((tools - 1))
    has_time 30 "compute-sanitizer $tool" || continue
    # What is said of others' kernels is not ours to mend. initcheck has to see every kernel that writes, so it gets
    # only layers without those of cuBLAS and cuDNN.
    cases='BatchNormTest.*:*PoolTest.*:*CrossEntropyTest.*:*LabelLossTest.*' kernels=
    [ $tool = initcheck ] || cases="Conv2dTest.*:DenseTest.*:$cases" kernels='--kernel-name kns=muster'
    # Each case takes a hundred times longer than without it.
    # shellcheck disable=SC2086
    limited "$share" compute-sanitizer --tool $tool $kernels --report-api-errors no --error-exitcode 9 \
      "$bin/card_test" --gtest_filter="$cases" >"$work/sanitizer.log" 2>&1
    code=$?
    cat "$work/sanitizer.log" >>"$log"
    passed=$(grep -c '^\[       OK' "$work/sanitizer.log")
    say "$tool: $(grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY' "$work/sanitizer.log" | sort -u | tr '\n' ' ')$passed cases"
    case $code in
      0) [ "$passed" -gt 0 ] || fail "compute-sanitizer $tool: ran no case: $(end_of "$work/sanitizer.log")" ;;
      124 | 137)
        late "the rest of $tool"
        found=$(grep -E '^=+ (Invalid|Error|Uninitialized|Barrier|Race|Program hit)' "$work/sanitizer.log" | head -n 1)
        [ -z "$found" ] || fail "compute-sanitizer $tool: $found"
        ;;
      *) fail "compute-sanitizer $tool: exit code $code: $(end_of "$work/sanitizer.log")" ;;
    esac
  done
}

stage_6() {
  command -v ncu >/dev/null || not_run "ncu is missing"
  : "${rows:=$out/stage-3.md}"
  [ -s "$rows" ] || rows=$kept/stage-3.md
  [ -s "$rows" ] || not_run "$rows is missing: run stage 3 first"
  # Columns: kernel, type, MB, µs, GB/s, GB/s of a copy, share. Takes the smallest shares.
  awk -F' *[|] *' 'NF == 9 && ($3 == "FP32" || $3 == "BF16") { print $8 "|" $2 "|" $3 }' "$rows" |
    sort -n | head -n 5 >"$work/slowest"
  [ -s "$work/slowest" ] || not_run "no kernels in $rows"
  while IFS='|' read -r share kernel type; do
    has_time 20 "$kernel, $type" || continue
    # The first launch of each is not warm.
    limited 90 ncu --clock-control none --section SpeedOfLight --section Occupancy --section WarpStateStats \
      --kernel-name-base demangled --kernel-name regex:muster --launch-skip 1 --launch-count 2 \
      "$bin/gpu_bench" kernels --batch 512 --exactly "$kernel" --type "$type" --repeats 1 \
      >"$work/ncu.log" 2>&1 </dev/null
    code=$?
    cat "$work/ncu.log" >>"$log"
    say ""
    say "## $kernel, $type: $share of a copy"
    grep -hE '^  [a-zA-Z]|Duration|Throughput|Achieved Occupancy|Registers' "$work/ncu.log" | tee -a "$table"
    case $code in
      0) ;;
      124 | 137) late "$kernel" ;;
      *) fail "ncu, $kernel: exit code $code: $(end_of "$work/ncu.log")" ;;
    esac
  done <"$work/slowest"
}

# images GPUS NAME SETTING...: a row with the images per second of a training on so many GPUs.
images() {
  count=$1 name=$2
  shift 2
  has_time 40 "$name" || return
  words=
  for setting in "$@"; do words="$words --set $setting"; done
  # shellcheck disable=SC2086
  limited 120 "$bin/muster" launch "$work/resnet50_imagenet.txtpb" --run-dir "$work/$name" --workers "$count" \
    --steps 120 --set evaluation.every_epochs=0 --set evaluation.skip_final=true --set checkpoint.keep_last=0 \
    --set "run.global_batch=$((256 * count))" --set run.log_every_steps=20 --set learning_rate.base=0.001 \
    --set worker.backend=CUDA --set worker.soft_placement=false --set worker.precision=BF16 $words >"$work/n.log" 2>&1
  code=$?
  cat "$work/n.log" "$work/$name/worker-0.log" >>"$log" 2>/dev/null
  if at_budget $code; then late "$name"; return; fi
  [ $code = 0 ] || { fail "$name: exit code $code: $(end_of "$work/n.log")"; return; }
  say "| $count | $name | $(rate "$work/$name/metrics.jsonl") |"
}
stage_7() {
  gpus=$("$bin/gpu_probe" --parts find 2>/dev/null | grep -oE '^[0-9]+')
  [ "${gpus:-1}" -gt 1 ] || not_run "this machine has one GPU"
  timeout 20 nvidia-smi topo -m 2>>"$log" | tee -a "$table"
  [ -z "$python" ] || tabled "copies between GPUs" 60 "$python" bench/peers/gpu_copies.py
  say ""
  say "| trainings | |"
  say "|---|---|"
  one=$(on_gpu one-gpu cluster.workers=1 run.slices=2) || return
  if two=$(on_gpu two-gpus cluster.workers=2 run.slices=2); then same_bits "1 and 2 GPUs" "$one" "$two"; fi
  if sums=$(on_gpu sums cluster.workers=2 run.slices=2 worker.gpu_sums=true); then
    same_bits "sums on the host and between GPUs" "$one" "$sums"
  fi
  synthetic resnet50_imagenet 224 1000
  # With MPS, the relay and the workers use a GPU at the same time instead of taking turns.
  export CUDA_MPS_PIPE_DIRECTORY="$work/mps" CUDA_MPS_LOG_DIRECTORY="$work/mps"
  mkdir "$work/mps"
  if nvidia-cuda-mps-control -d 2>>"$log"; then
    if sums=$(on_gpu sums-mps cluster.workers=2 run.slices=2 worker.gpu_sums=true); then
      same_bits "sums between GPUs, with MPS" "$one" "$sums"
    fi
    images "$gpus" "$gpus-gpu-sums-mps" worker.gpu_sums=true
  else
    say "| sums between GPUs, with MPS | not run: nvidia-cuda-mps-control is missing or failed |"
  fi
  end_mps
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  rm -r "$work/mps"
  say ""
  say "| GPUs | gradients | resnet50, 256 images each, BF16: images/s |"
  say "|---|---|---|"
  for count in 1 2 4 8; do
    [ "$count" -gt "$gpus" ] || images $count "$count-host"
  done
  images "$gpus" "$gpus-gpu-sums" worker.gpu_sums=true
}

"stage_$stage"
mkdir -p "$kept" 2>>"$log" && cp "$table" "$kept/"
[ ! -e "$work/late" ] || sed 's/^/not done: /' "$work/late" >>"$table"
if [ -e "$work/failed" ]; then
  say "stage $stage: FAILED: $(paste -sd ';' "$work/failed")"
  exit 1
fi
if [ -e "$work/late" ]; then
  say "stage $stage: incomplete: $budget s were not enough for $(wc -l <"$work/late") parts, first of all $(head -n 1 "$work/late")"
  exit 3
fi
say "stage $stage: passed"
