#!/bin/sh
# On a processor without AVX2 (QEMU's Nehalem) every program ends with one line and exit code 2
# instead of an illegal instruction. Exit code 77: skipped.
# Usage: old_processor_test.sh MUSTER_ARCH MUSTER_SANITIZE PROGRAM ...
arch=$1
sanitize=$2
shift 2
if [ -n "$sanitize" ]; then
  echo "skipped: QEMU does not run a build with sanitizers"
  exit 77
fi
case $arch in
  '' | x86-64 | x86-64-v2)
    echo "skipped: a build for '$arch' needs no AVX2"
    exit 77
    ;;
esac
qemu=$(command -v qemu-x86_64 || command -v qemu-x86_64-static) || {
  echo "skipped: no qemu-x86_64 here (Debian package qemu-user)"
  exit 77
}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
status=0
for program in "$@"; do
  timeout 60 "$qemu" -cpu Nehalem "$program" --version >"$folder/out" 2>"$folder/err"
  code=$?
  expected="^$(basename "$program"): error: this processor lacks .*AVX2.*; this program was built for $arch:"
  if [ $code -ne 2 ] || [ -s "$folder/out" ] || [ "$(wc -l <"$folder/err")" -ne 1 ] ||
    ! grep -q "$expected" "$folder/err"; then
    echo "$program --version: expected exit code 2 and one line, '$expected'; got $code and"
    cat "$folder/out" "$folder/err"
    status=1
  fi
done
exit $status
