#!/usr/bin/env bash
# Runs PyTorch's own distributed tests over Gloo and over rondo:  [TORCH=VERSION] scripts/plugin_peers.sh TESTS [OPTION...]
#
# TESTS is the folder `test` of PyTorch's sources, OPTIONs are those of python/peers/run.py. The plug-in is that of build/$PRESET
# (release by default), with .venv's torch. TORCH names another version: then it is that of the wheel that scripts/package.sh made for
# it, with the torch of build/torch/VERSION. What the tests import besides torch is installed in build/peers.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ $# -gt 0 ] || fail "the folder of PyTorch's tests is missing" "Run:  scripts/plugin_peers.sh /path/to/pytorch/test"
environment=$root/.venv package=$root/build/${PRESET:-release}/python needed=$root/build/peers
if [ -n "${TORCH:-}" ]; then
  environment=$root/build/torch/$TORCH
  wheels=("$root/build/package/torch$TORCH"/*.whl)
  [ -f "${wheels[0]}" ] || fail "there is no wheel for torch $TORCH" "Make it with:  make package KINDS=wheel TORCH=$TORCH"
  package=$root/build/package/torch$TORCH/installed
  rm -rf "$package"
  "$root/.venv/bin/python" -m pip install --quiet --no-index --no-deps --target "$package" "${wheels[0]}"
fi
if ! PYTHONPATH=$needed "$environment/bin/python" -c 'import expecttest, hypothesis, psutil, setuptools' 2>/dev/null; then
  say "installing what PyTorch's tests import in $needed"
  "$root/.venv/bin/python" -m pip install --quiet --target "$needed" expecttest hypothesis psutil setuptools
fi
PYTHONPATH=$needed exec "$environment/bin/python" "$root/python/peers/run.py" "$1" --package "$package" "${@:2}"
