#!/usr/bin/env bash
# Makes and checks all files of a release in build/release-VERSION, from the last commit:
#
#   muster-VERSION-linux-x86_64.tar.gz          muster_train-VERSION-….whl          programs
#   libmuster_cuda-VERSION-cudaMAJOR-….tar.gz   muster_train_cudaMAJOR-VERSION-….whl   CUDA backends
#   muster-VERSION-source.tar.gz                SHA256SUMS
#
#   scripts/release.sh
#
# Needs root, Debian 12, 12 GB of disk, a network with apt's mirror and PyPI, and nvcc of CUDA 13 with cuDNN's headers.
# All are tried: programs in bare Debian 12 and 13, by ordinary users; a backend with NVIDIA's own wheels in an
# environment without a toolkit, where everything but the driver must be found.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "release.sh: $*" >&2; exit 1; }

(($# == 0)) || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; [[ $1 == -h || $1 == --help ]] || exit 2; exit; }
changes=$(git status --porcelain)
[[ -z $changes ]] || fail "commit or remove the changes first: git status"
commit=$(git rev-parse --short HEAD)
rm -rf build/package build/package-cuda
scripts/package.sh
package=$(echo build/package/muster-*-linux-x86_64.tar.gz)
scripts/package_cuda12.sh "$package"
scripts/wheel.sh
scripts/wheel.sh --check build/package/muster_train{,_cuda*}-*.whl
version=${package#*/muster-}
version=${version%%-*}
release=build/release-$version
rm -rf "$release"
mkdir "$release"
for name in muster-"$version"-linux libmuster_cuda-"$version"-cuda{12,13} muster_train-"$version" \
  muster_train_cuda{12,13}-"$version"; do
  mv build/package/"$name"-*.{tar.gz,whl} "$release/" 2>/dev/null || true
  compgen -G "$release/$name-*" >/dev/null || fail "expected $name-… in build/package"
done
[[ $(git rev-parse --short HEAD) == "$commit" ]] || fail "HEAD is no longer $commit: begin again"
git archive --prefix="muster-$version/" -o "$release/muster-$version-source.tar.gz" "$commit"
(cd "$release" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
grep -q "^## $version (unreleased)" CHANGELOG.md &&
  echo "CHANGELOG.md still calls $version unreleased; see CONTRIBUTING.md, \"Before a release\"."
[[ -f LICENSE ]] || echo "There is no LICENSE, so nobody may use these files."
echo "$release: $(find "$release" -type f | wc -l) files from commit $commit."
