#!/usr/bin/env bash
# gpu-check on the programs of `make gpu-bundle`:  scripts/gpu_check.sh [--only PART] [--json FILE]
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

LIBTORCH=${LIBTORCH:-$root/build/gpu/venv}
[ -x "$LIBTORCH/bin/python3" ] && [ -x "$root/build/cuda/bin/rondo" ] ||
  fail "build/cuda/bin/rondo or $LIBTORCH/bin/python3 is missing" "Get them with:  make gpu-bundle"
export LIBTORCH
exec "$LIBTORCH/bin/python3" "$root/scripts/gpu_check" --programs "$root/build/cuda/bin" --peers "$root/bench/peers" "$@"
