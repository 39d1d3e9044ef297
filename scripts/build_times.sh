#!/usr/bin/env bash
# Measures clean and incremental build times without a compiler cache, in a fresh clone:  scripts/build_times.sh
# [PART...]
#
#   quickstart   `make quickstart`, to the trained model and its report (8 minutes are the goal)
#   tests        the build of everything with tests (15 minutes)
#   ci           `.ci/run`, each step of it (45 minutes)
#   dev          file by file, preset dev: one changed .cpp (15 seconds) and a much-included header of strategy/ (3 minutes). Builds
#                everything that way first, which takes about an hour on two cores
#
# Without PART: quickstart and tests. The clone has the committed state, in a temporary folder, and is removed.
# Installed system packages are not installed again; mention this beside the results.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

export CCACHE_DISABLE=1
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT

# Prints the seconds of a command to standard output, and the command's output to standard error.
timed() {
  local name=$1 began=$SECONDS
  shift
  "$@" >&2
  say "$name: $((SECONDS - began)) s"
}

fresh() {
  rm -rf "${clone:?}/rondo"
  git clone --quiet "$root" "$clone/rondo"
  cd "$clone/rondo"
}

quickstart() { fresh && timed "make quickstart" make quickstart; }
tests() { fresh && make setup >&2 && timed "make build" make build; }
ci() { fresh && timed ".ci/run" env CI=true bash .ci/run; }
dev() {
  fresh && make build PRESET=dev >&2
  touch rondo/strategy/finish_step.cpp
  timed "one changed .cpp" scripts/build.py build/dev rondo-train-worker
  touch rondo/strategy/training.h
  timed "rondo/strategy/training.h" scripts/build.py build/dev rondo-train-worker
}

[ "$#" -gt 0 ] || set -- quickstart tests
for part in "$@"; do
  case $part in
    quickstart | tests | ci | dev) "$part" ;;
    *) fail "no such part: $part" "There are: quickstart, tests, ci, dev" ;;
  esac
done
