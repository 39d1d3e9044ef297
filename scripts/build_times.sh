#!/usr/bin/env bash
# How long building takes from nothing and after a change, without a compiler cache, in a fresh clone:  scripts/build_times.sh [PART...]
#
#   quickstart   `make quickstart`, to the trained model and its report (8 minutes are the goal)
#   tests        the build of everything with tests (15 minutes)
#   ci           `.ci/run`, each step of it (45 minutes)
#   dev          file by file, preset dev: one changed .cpp (15 seconds) and a much-included header of strategy/ (3 minutes). Builds
#                everything that way first, which takes about an hour on two cores
#
# Without PART: quickstart and tests. The clone is of what is committed, in a temporary folder, and is removed. System packages that are
# there already are not installed again: say so beside the figures.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

export CCACHE_DISABLE=1
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT

# How many seconds a command took stands on standard output; what it prints goes to standard error.
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
