#!/usr/bin/env bash
# Makes this machine ready to build and test rondo: system packages and .venv.
#
#   scripts/setup.sh [--programs|--peers]
#
# --programs   only what building and running the programs takes: no tools for developers, no Python packages of tests
# --peers      also Open MPI, for the engine mpi, its tests and benchmarks next to it
#
# Safe to run again: what is there is left alone, and a second run takes a fraction of a second.
# LIBTORCH=/path uses an existing libtorch; torch is then not installed.
# RONDO_SKIP_PACKAGES=1 leaves system packages to you.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

kinds="required optional tools"
venv_arguments=()
for argument in "$@"; do
  case "$argument" in
    --peers) kinds="$kinds peers" ;;
    --programs)
      kinds="required optional"
      venv_arguments=(--programs)
      ;;
    *) fail "unknown argument '$argument'" "Allowed: --programs, --peers" ;;
  esac
done

if [ -z "${RONDO_SKIP_PACKAGES:-}" ]; then
  # shellcheck disable=SC2086  # kinds is a list of words
  "$root/scripts/install_packages.sh" $kinds
fi
"$root/scripts/make_venv.sh" "${venv_arguments[@]}"
