#!/usr/bin/env bash
# Makes a folder that runs on a machine with only an NVIDIA GPU and driver: no network, no packages, and any
# Debian or Ubuntu that is not older than this one. Its gpu_check.sh measures there what needs a GPU:
#
#   scripts/carry.sh [FOLDER]     # default: build/carry/muster-carry; at most 35 MiB
#   FOLDER/gpu_check.sh --stage 1 --out DIR
#   scripts/carry.sh --check      # tests the folder in a bare Debian 12 and 13, without network; needs root
#
# Its programs.tar.gz contains bin/ and lib/: Muster's programs, card_test, gpu_bench and gpu_probe, the CUDA
# backend for MUSTER_CARRY_ARCHITECTURES (default: 90-real, H100 and H200), and every library except those of
# the system and of CUDA. gpu_check.sh unpacks it in the user's cache. The folder also contains configs, golden files, the Python package,
# examples and PyTorch peers. That machine must have cuBLAS and cuDNN, in the system or in the wheels of a Python (as with PyTorch).
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/carry
folder=${1:-$build/muster-carry}
most=$((35 << 20))
. scripts/bundle.sh
cuda='^(libcudart|libcublas|libcublasLt|libcudnn[a-z_]*|libcuda|libnvidia-ml)\.so'

fail() { echo "carry.sh: $*" >&2; exit 1; }

# shellcheck disable=SC2154  # debian_root.sh sets $workspace
# Without a GPU, every stage must end with one line and exit code 2, and Muster must train on the CPU.
check_in() {
  local root=$workspace/bare-$1 log=$workspace/bare-$1.log
  make_root "$1" "$root"
  cp -r "$folder" "$root/root/carry"
  # shellcheck disable=SC2016  # expanded by the inner shell
  in_root "$root" root unshare --net sh -euc '
    cd /root/carry
    for stage in 1 2 3 4 5 6 7; do
      code=0
      ./gpu_check.sh --stage $stage --out /tmp/out || code=$?
      [ $code = 2 ] || { echo "expected exit code 2, got $code"; exit 1; }
      [ "$(wc -l </tmp/out/stage-$stage.md)" = 1 ] || { echo "expected one line"; exit 1; }
    done
    cd ~/.cache/muster/carry-*
    missing=$(ldd bin/* lib/libmuster_*.so | grep "not found" | grep -v "libcublas" || true)
    [ -z "$missing" ] || { echo "missing libraries: $missing"; exit 1; }
    bin/muster launch /root/carry/configs/smoke.txtpb --devices cpu
    MUSTER_GOLDEN_DIR=/root/carry/golden bin/card_test 2>&1 | grep "^skipped: "  # there is no GPU
  ' >"$log" 2>&1 || { cat "$log" >&2; fail "failed in a bare $1"; }
  grep -hE '^stage|Completed|^skipped' "$log" | sed "s/^/$1: /"
}

if [[ ${1:-} == --check ]]; then
  # shellcheck source=scripts/debian_root.sh
  . scripts/debian_root.sh
  folder=$build/muster-carry
  [[ -d $folder ]] || fail "--check: $folder does not exist; make it with scripts/carry.sh"
  new_workspace
  for release in bookworm trixie; do check_in $release; done
  exit
fi

command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]] || fail "nvcc is missing; install the CUDA toolkit"
archive=$(static_libarchive) || fail "libarchive.a is missing; scripts/setup.sh installs libarchive-dev"
# Keeps the default x86-64-v3, because the other machine may have another processor.
cmake -S . -B $build -G Ninja -Wno-dev -DCMAKE_BUILD_TYPE=Release -DLibArchive_LIBRARY="$archive" \
  -DMUSTER_CUDA_ARCHITECTURES="${MUSTER_CARRY_ARCHITECTURES:-90-real}" >/dev/null
programs=(muster muster-server muster-worker card_test gpu_bench gpu_probe)
echo "Building $build ..."
cmake --build $build --target "${programs[@]}" muster_cuda muster_client_library -- --quiet

stage=$build/stage
[[ ! -e $folder || -f $folder/gpu_check.sh ]] || fail "$folder is something else than the folder of an earlier run"
rm -rf $stage "$folder"
mkdir -p $stage/{bin,lib} "$folder"/bench
for program in "${programs[@]}"; do install -s -m755 "$build/bin/$program" $stage/bin/; done
install -s -m644 $build/lib/libmuster_{cuda,client}.so $stage/lib/
while read -r soname path; do
  [[ $soname =~ $system || $soname =~ $cuda ]] && continue
  [[ -f $path ]] || fail "$soname: expected a file, found '$path'"
  install -s -m644 "$path" "$stage/lib/$soname"
done < <(libraries_of $stage/bin/*)
# All programs, even those that CMake linked for the build folder, must first search for libraries next to
# themselves.
for program in "${programs[@]}"; do
  runpath=$(objdump -p "$stage/bin/$program" | awk '$1 == "RUNPATH" || $1 == "RPATH" { print $2 }')
  # shellcheck disable=SC2016  # the loader expands $ORIGIN
  [[ $runpath == *'$ORIGIN/../lib'* ]] || fail "$program: expected \$ORIGIN/../lib in its RUNPATH, found '$runpath'"
done
# Only the stages of PyTorch programs need the client library, which contains this machine's libstdc++: it runs where
# glibc is not older than here.
mapfile -t checked < <(find $stage/bin $stage/lib -type f ! -name libmuster_client.so)
scripts/check_symbols.sh "${checked[@]}"

pack $stage bin lib >"$folder/programs.tar.gz"
cp -r configs "$folder/"
cp -r tests/nn/golden "$folder/golden"
cp -r bench/peers "$folder/bench/"
rm -f "$folder"/bench/peers/*.cc
mkdir "$folder"/{python,examples}
cp -r python/muster "$folder/python/"
cp examples/pytorch_transformer.py "$folder/examples/"
find "$folder" -name __pycache__ -exec rm -r {} +
cp scripts/gpu_check.sh "$folder/"
git describe --always --dirty --abbrev=12 >"$folder/commit"
bytes=$(du -sb "$folder" | cut -f1)
((bytes <= most)) || fail "$folder has $bytes bytes: expected at most $most"
echo "$folder: $(awk '{ printf "%.1f MiB", $1 / 1048576 }' <<<"$bytes"), $(find "$folder" -type f | wc -l) files"
