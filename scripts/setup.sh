#!/usr/bin/env bash
# Makes this machine ready to build and test rondo: system packages and .venv.
#
#   scripts/setup.sh [--peers]    --peers also installs Open MPI, for the engine mpi, its tests and benchmarks next to it
#
# Safe to run again: what is there is left alone, and a second run takes a fraction of a second.
# LIBTORCH=/path uses an existing libtorch; torch is then not installed.
# RONDO_SKIP_PACKAGES=1 leaves system packages to you.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

kinds="required optional"
for argument in "$@"; do
  case "$argument" in
    --peers) kinds="$kinds peers" ;;
    *) fail "unknown argument '$argument'" "Allowed: --peers" ;;
  esac
done

if [ -z "${RONDO_SKIP_PACKAGES:-}" ]; then
  # shellcheck disable=SC2086  # kinds is a list of words
  "$root/scripts/install_packages.sh" $kinds
fi
"$root/scripts/make_venv.sh"
