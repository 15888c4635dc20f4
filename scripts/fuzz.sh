#!/usr/bin/env bash
# Runs the fuzzers of tests/fuzz, one after the other: scripts/fuzz.sh [OPTION ...] [TARGET ...]
#
#   --seconds N   the time for each target (default: 60)
#   --dir DIR     where to save inputs and findings (default: ~/.cache/muster-fuzz)
#   --keep        instead: minimizes the inputs found so far, and writes the smallest (at most 100, and
#                 12 KiB) to tests/fuzz/corpus/TARGET.inputs, which the tests replay. Inputs there that have a
#                 name stay (scripts/fuzz_corpus.py)
#   --built       skips building, so that several of these scripts can run in parallel on different targets
#   --list        lists the targets
#
# Without TARGET, runs all of them. Exit code 1 if an input makes a target abort, take too long or use too
# much memory. Such inputs are saved in DIR/TARGET/finds, and the commands that repeat them are printed.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60 dir=${XDG_CACHE_HOME:-$HOME/.cache}/muster-fuzz keep=false built=false
# Headers can be a megabyte and configs several pages, but longer inputs are slow and reach nothing new.
readonly most_bytes=8192
readonly most_kept=12288  # bytes for each target
targets=()
mapfile -t all < <(sed -nE 's/^muster_fuzz_target\((\w+).*/\1/p' tests/fuzz/CMakeLists.txt)
while (($#)); do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --dir) dir=$2; shift ;;
    --keep) keep=true ;;
    --built) built=true ;;
    --list) printf '%s\n' "${all[@]}"; exit ;;
    -*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    *)
      [[ " ${all[*]} " == *" $1 "* ]] || { echo "no target $1: expected one of ${all[*]}" >&2; exit 2; }
      targets+=("$1")
      ;;
  esac
  shift
done
((${#targets[@]})) || targets=("${all[@]}")

# Finds the newest clang with libFuzzer and 16-bit floats.
find_clang() {
  local clang
  for clang in clang++-{25..15} clang++; do
    command -v "$clang" >/dev/null || continue
    echo '_Float16 half; extern "C" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }' |
      "$clang" -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null || continue
    echo "$clang"
    return
  done
  echo "fuzz.sh: expected clang 15 or later with libFuzzer, found none: apt-get install clang-19" \
       "libclang-rt-19-dev (Debian 12 and 13)" >&2
  return 1
}

build() {
  local clang
  clang=$(find_clang)
  [[ -f build/fuzz/build.ninja ]] ||
    cmake --preset fuzz -Wno-dev -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_C_COMPILER="${clang/++/}" >/dev/null
  cmake --build --preset fuzz "${targets[@]/#/--target=fuzz_}" -- --quiet
}

# seeds TARGET: the folders of initial inputs. Configs are inputs themselves.
seeds() {
  rm -rf "$dir/$1/seeds"
  scripts/fuzz_corpus.py unpack "$1" "$dir/$1/seeds"
  echo "$dir/$1/seeds"
  [[ ! -d tests/fuzz/corpus/$1 ]] || echo "tests/fuzz/corpus/$1"
  case $1 in
    config_text) echo configs ;;
    model_text) echo configs/models ;;
  esac
}

# names FILE ...: the names in .proto files, and the short string literals in sources.
names() {
  local file
  for file; do
    case $file in
      *.proto) sed 's://.*::' "$file" | grep -oE '[A-Za-z_][A-Za-z0-9_]+' ;;
      *) grep -vE '^ *(#|//)' "$file" | grep -oE '"[A-Za-z0-9_.:/ -]{2,40}"' | tr -d '"' ;;
    esac
  done | sort -u
}

# words TARGET: the words that its parser knows, one per line, as in libFuzzer's dictionaries. In JSON, most
# of them are in quotes.
words() {
  case $1 in
    config_text | model_text | set_override) names proto/config.proto | sed 's/.*/"&"/' ;;
    texts) names proto/config.proto | sed 's/.*/"&"/'; printf '"%s"\n' 'error: ' 'exit code ' ;;
    events) names proto/events.proto | sed 's/.*/"\\"&\\""/' ;;
    run_files)
      names cli/view/run_reader.cc | sed 's/.*/"\\"&\\""/' ;;
    trace) names cli/trace/*.cc | sed 's/.*/"\\"&\\""/' ;;
    safetensors)
      names common/tensors/safetensors_header.cc common/model/model_metadata.cc | sed 's/.*/"\\"&\\""/'
      names proto/config.proto | sed 's/.*/"&"/' ;;
    data_sets) printf '"%s"\n' "'descr': " "'fortran_order': " "'shape': " True False "'<f4'" "'|u1'" "'<i8'" ;;
    tickets) printf '"%s"\n' 'pid ' 'wants ' 'what ' 'card ' ;;
    endpoint) printf '"%s"\n' tcp:// local://@ ipc:// '127.0.0.1' '[::1]' '*' ;;
  esac
}

# Targets that compare bytes without branches, such as checksums, lengths or tags of messages.
readonly profiled=" archive checkpoint client door event_file frames jpeg local_client local_server png ring safetensors server "

# Targets with so many features that libFuzzer's schedule for rare ones would take most of the time.
readonly many_features=" checkpoint server trace "

# Options of both fuzzing and minimizing.
readonly limits=(-rss_limit_mb=2048 -malloc_limit_mb=1024 -timeout=25 "-max_len=$most_bytes")
# Deep allocation stacks are only needed to repeat a finding, and for inputs of some kilobytes 16 MB of
# quarantine are as good as 256 MB.
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=0:malloc_context_size=3:quarantine_size_mb=16
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

fuzz() {
  local name=$1 place=$dir/$1 log=$dir/$1/log from
  mkdir -p "$place/corpus" "$place/finds"
  mapfile -t from < <(seeds "$name")
  words "$name" >"$place/words"
  local options=()
  [[ ! -s $place/words ]] || options+=("-dict=$place/words")
  [[ $profiled != *" $name "* ]] || options+=(-use_value_profile=1)
  [[ $many_features != *" $name "* ]] || options+=(-entropic=0)
  # Temporary files of the target go to a folder that is removed afterwards. It is in memory, because writing
  # files is not what these targets test.
  local tmp TIMEFORMAT='%U %S'
  tmp=$(mktemp -d "$([[ -w /dev/shm ]] && echo /dev/shm || echo "$place")/muster-fuzz-XXXXXX")
  { time TMPDIR=$tmp nice -n 19 "build/fuzz/bin/fuzz_$name" -max_total_time="$seconds" "${limits[@]}" \
      "${options[@]}" -artifact_prefix="$place/finds/" -print_final_stats=1 -print_funcs=0 \
      "$place/corpus" "${from[@]}" >"$log" 2>&1 || true; } 2>"$place/time"
  rm -rf "$tmp"
}

# report TARGET: prints a line of the table, and appends it to DIR/TARGET/runs.
report() {
  local log=$dir/$1/log
  count() { sed -nE "s/^stat::$1: *//p" "$log" | tail -n 1; }
  printf '%-16s %8s %12s %10s %10s %8s\n' "$1" "$(awk '{ print int($1 + $2) }' "$dir/$1/time")" "$(count number_of_executed_units)" \
    "$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | cut -d' ' -f2)" "$(count peak_rss_mb)" \
    "$(find "$dir/$1/finds" -type f | wc -l)" | tee -a "$dir/$1/runs"
}

keep() {
  local name=$1 new=$dir/$1/kept from
  rm -rf "$new"
  mkdir -p "$new" "$dir/$name/corpus"
  mapfile -t from < <(seeds "$name" | grep -v ^configs || true)
  "build/fuzz/bin/fuzz_$name" -merge=1 "${limits[@]}" "$new" "${from[@]}" "$dir/$name/corpus" \
    >"$dir/$name/log" 2>&1
  # Keep only the smallest inputs, because the history of the repository never shrinks.
  local input size sum=0 smallest=$dir/$name/smallest
  rm -rf "$smallest"
  mkdir "$smallest"
  while read -r size input; do
    ((sum + size <= most_kept)) || break
    sum=$((sum + size))
    cp "$new/$input" "$smallest/"
  done < <(find "$new" -type f -printf '%s %f\n' | sort -n | head -n 100)
  scripts/fuzz_corpus.py pack --unnamed "$smallest" "$name"
}

$built || build
if $keep; then
  for target in "${targets[@]}"; do keep "$target"; done
  exit
fi
found=()
printf '%-16s %8s %12s %10s %10s %8s\n' target 'cpu (s)' executions coverage 'peak (MB)' finds
for target in "${targets[@]}"; do
  fuzz "$target"
  report "$target"
  mapfile -t -O "${#found[@]}" found < <(find "$dir/$target/finds" -type f)
done
((${#found[@]} == 0)) && exit 0
echo
echo "Findings, with the commands that repeat them:"
for input in "${found[@]}"; do
  target=$(basename "$(dirname "$(dirname "$input")")")
  echo "  build/fuzz/bin/fuzz_$target $input"
done
echo "After fixing one, move its input to tests/fuzz/corpus/TARGET/WHAT.found, which the tests replay;"
echo "scripts/fuzz_corpus.py pack TARGET adds it to the others."
exit 1
