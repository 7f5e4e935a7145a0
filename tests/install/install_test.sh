#!/usr/bin/env bash
# install_test.sh BUILD COMPILER
#
# A user's project outside the tree: install to a prefix, find_package(dtrain), build, train. Checks
# that nothing is written outside the prefix, so that no root is needed.
set -euo pipefail

build=$1
compiler=$2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() {
  echo "install_test: $*" >&2
  exit 1
}

cmake --install "$build" --prefix "$prefix" >"$work/install.log" || {
  cat "$work/install.log"
  fail "cmake --install failed"
}
outside=$(grep -v "^$prefix/" "$build/install_manifest.txt" || true)
[[ -z $outside ]] || fail "written outside the prefix: $outside"
"$prefix/bin/dtrain" version

# The project is copied away, so that it cannot find a header of the source tree by accident.
cp -r "$source/examples/custom_model" "$work/project"
cmake -S "$work/project" -B "$work/project/build" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror"
cmake --build "$work/project/build"

cd "$work"
"$work/project/build/custom_model" --nproc 2 "$work/project/spirals.yaml" train.epochs=2 \
  data.train.size=640 model.blocks=1
summary=$work/runs/spirals/summary.json
cat "$summary"
grep -q '"status": "done"' "$summary" || fail "the run is not done"
grep -q '"steps": 20' "$summary" || fail "not 20 steps"
grep -q '"world_size": 2' "$summary" || fail "not 2 processes"
grep -q 'blocks.0.inner.weight' <("$work/project/build/custom_model" check "$work/project/spirals.yaml") ||
  fail "check does not list the model's parameters"
# A wrong key of the added model is an error like any other.
status=0
"$work/project/build/custom_model" "$work/project/spirals.yaml" model.widht=8 2>"$work/error" || status=$?
cat "$work/error"
[[ $status == 2 ]] || fail "a wrong key ended with exit code $status, not 2"
grep -q "width" "$work/error" || fail "the error does not name the nearest key"
