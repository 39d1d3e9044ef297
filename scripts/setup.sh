#!/usr/bin/env bash
# Makes this machine ready to build and test rondo: system packages and .venv.
#
#   scripts/setup.sh [--programs|--peers]
#
# --programs   only the packages for building and running the programs: no developer tools, no Python packages of tests
# --peers      also Open MPI, for the engine mpi, its tests and the comparisons with it
#
# Safe to run again: existing parts are not changed, and a second run takes a fraction of a second.
# LIBTORCH=/path uses an existing libtorch; torch is then not installed.
# RONDO_SKIP_PACKAGES=1 skips system packages.
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
