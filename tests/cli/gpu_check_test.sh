#!/bin/sh
# Tests scripts/gpu_check.sh. Without a visible GPU each stage ends with one line and exit code 2.
# With fake programs, stages that exceed the time budget are skipped without counting as failures.
# Usage: gpu_check_test.sh SCRIPT FOLDER_OF_THE_PROGRAMS
script=$1 bin=$2
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
failed=0
# expect WHAT GOT WANTED
expect() { [ "$2" = "$3" ] || { echo "$1: expected $3, got $2"; failed=1; }; }
for stage in 1 2 3 4 5 6 7; do
  line=$(CUDA_VISIBLE_DEVICES=-1 "$script" --stage $stage --out "$out" --bin "$bin")
  expect "exit code of stage $stage" $? 2
  expect "its line" "${line%%:*}" "stage $stage"
  expect "its table" "$(cat "$out/stage-$stage.md")" "$line"
done
for wrong in '--stage 8' '--stage 1 --budget soon' '--stage' '--what 1'; do
  # shellcheck disable=SC2086 # word splitting is intended
  "$script" --out "$out/wrong" $wrong >"$out/said" 2>&1
  expect "exit code of $wrong" $? 2
  [ ! -e "$out/wrong" ] || { echo "$wrong: made $out/wrong"; failed=1; }
done

# A clock that each fake training advances by ten minutes.
play=$out/play
mkdir "$play"
echo 1000 >"$out/now"
part() { printf '#!/bin/sh\n%s\n' "$2" >"$play/$1" && chmod +x "$play/$1"; }
part date "cat '$out/now'"
part gpu_probe 'exit 0'
part card_test 'echo "[  PASSED  ] 3 tests."'
part muster "echo 1600 >'$out/now'; exit 124"
# played EXIT_CODE [STAGE OPTION ...]: runs a stage, by default 2, with the fake programs.
played() {
  code=$1 stage=${2:-2}
  shift
  [ $# = 0 ] || shift
  PATH=$play:$PATH "$script" --stage "$stage" --out "$out/played" --bin "$play" --python true "$@" >"$out/said" 2>&1
  expect "exit code of stage $stage when it is played" $? "$code"
}
in_table() {
  grep -q "^$1" "$out/played/stage-$stage.md" || { echo "no row '$1' in:"; cat "$out/played/stage-$stage.md"; failed=1; }
}
played 3
# Rows "not found: LIBRARY" come first if CUDA's libraries are not installed.
expect "the first row" "$(grep -v '^not found: ' "$out/played/stage-2.md" | head -n 1 | cut -d: -f1)" \
  "card_test, convolutions AUTO"
in_table 'not done: gpu-1'
in_table 'not done: cpu'
echo 1000 >"$out/now"
part card_test "echo '[  FAILED  ] DenseTest'; exit 1"
played 1
in_table 'not done: cpu'
# A training that hangs although there is time left.
echo 1000 >"$out/now"
part card_test 'echo "[  PASSED  ] 3 tests."'
part muster 'exit 124'
played 1
in_table 'FAILED: gpu-1: exit code 124'
# Trainings with equal bits, the last of them beside a process that computes until it is over.
echo 1000 >"$out/now"
# shellcheck disable=SC2016 # expanded by the program
part muster 'while [ "$1" != --run-dir ]; do shift; done; run=$2
mkdir -p "$run"
echo "locked for this job"
echo "computing on a GPU" >"$run/worker-0.log"
case $run in */gpu-7) while [ ! -s "$(dirname "$run")/turns" ]; do sleep 0.1; done ;; esac
echo "{\"weights_hash\": \"1f\", \"test_loss\": 0.5, \"test_accuracy\": 1}" >"$run/metrics.jsonl"'
part gpu_bench 'sleep 0.1'
played 0
in_table '| 1 and 2 workers | the same bits'
in_table '| beside another process on the GPU, which measured a kernel [1-9]'
in_table '| GPU, AUTO, BF16 | 0.5'
part gpu_bench 'exit 1'
# shellcheck disable=SC2016
part muster 'while [ "$1" != --run-dir ]; do shift; done; run=$2
mkdir -p "$run"
echo "{\"weights_hash\": \"1f\", \"test_loss\": 0.5, \"test_accuracy\": 1}" >"$run/metrics.jsonl"'
played 1
in_table 'FAILED: beside another process: '
in_table 'FAILED: program-1: took no GPU'
# What the sanitizer found before its time was up.
part compute-sanitizer 'echo "========= Invalid __global__ write of size 4 bytes"; exit 124'
played 1 5
in_table 'FAILED: compute-sanitizer memcheck: =* Invalid'
# A profile of the slowest kernel of stage 3, whose table another machine may have written.
# shellcheck disable=SC2016
part ncu 'echo "  Kernel of $*"'
printf '| kernel | type | MB | us | GB/s | copy | share |\n| relu | FP32 | 1 | 1 | 1 | 1 | 0.90 |\n| slow | BF16 | 1 | 1 | 1 | 1 | 0.20 |\n' \
  >"$out/rows"
played 2 6
played 0 6 --rows "$out/rows"
expect "the first profile" "$(grep -m 1 '^## ' "$out/played/stage-6.md")" "## slow, BF16: 0.20 of a copy"
exit $failed
