#!/usr/bin/env bash
# gpu-check on the programs of `make gpu-bundle`, else of `make build`:  scripts/gpu_check.sh [--only PART] [--json FILE]
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=$root/build/cuda
LIBTORCH=${LIBTORCH:-$root/build/gpu/venv}
# Programs for cards come first; those of `make build` have the simulated accelerator.
if [ ! -x "$build/bin/rondo" ] && [ -e "$root/build/release/lib/rondo_sim.so" ]; then
  build=$root/build/release
  LIBTORCH=$root/.venv
fi
[ -x "$LIBTORCH/bin/python3" ] && [ -x "$build/bin/rondo" ] ||
  fail "build/cuda/bin/rondo or $LIBTORCH/bin/python3 is missing" "Get them with:  make gpu-bundle  (or, without a card: make build)"
export LIBTORCH
exec "$LIBTORCH/bin/python3" "$root/scripts/gpu_check" --programs "$build/bin" --peers "$root/bench/peers" "$@"
