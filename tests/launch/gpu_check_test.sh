#!/bin/sh
# scripts/gpu_check.sh where no GPU is visible: each stage ends with one line and exit code 2.
# Usage: gpu_check_test.sh SCRIPT FOLDER_OF_THE_PROGRAMS
script=$1 bin=$2
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
failed=0
# expect WHAT GOT WANTED
expect() { [ "$2" = "$3" ] || { echo "$1: expected $3, got $2"; failed=1; }; }
for stage in 1 2 3 4 5 6; do
  line=$(CUDA_VISIBLE_DEVICES=-1 "$script" --stage $stage --out "$out" --bin "$bin")
  expect "exit code of stage $stage" $? 2
  expect "its line" "${line%%:*}" "stage $stage"
  expect "its table" "$(cat "$out/stage-$stage.md")" "$line"
done
for wrong in '--stage 7' '--stage 1 --budget soon' '--stage' '--what 1'; do
  # shellcheck disable=SC2086 # words on purpose
  "$script" --out "$out/wrong" $wrong >"$out/said" 2>&1
  expect "exit code of $wrong" $? 2
  [ ! -e "$out/wrong" ] || { echo "$wrong: made $out/wrong"; failed=1; }
done
exit $failed
