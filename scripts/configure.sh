#!/usr/bin/env bash
# Configures a preset if it is not configured, or if the presets, LIBTORCH, CC, CXX or the presence of MPI changed:
# scripts/configure.sh PRESET [FOLDER]     FOLDER: build/PRESET by default
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=$1
build=${2:-$root/build/$preset}
# Requires MPI's headers: openmpi-bin alone only has the compiler wrapper.
mpi=$(mpicc -E -include mpi.h -x c /dev/null >/dev/null 2>&1 && command -v mpicc || true)
settings="PRESETS=$(cksum <"$root/CMakePresets.json") LIBTORCH=${LIBTORCH:-} CC=${CC:-} CXX=${CXX:-} CMAKE_ARGS=${CMAKE_ARGS:-} MPI=$mpi"
if [ -f "$build/build.ninja" ] && [ "$(cat "$build/configured-with" 2>/dev/null)" = "$settings" ]; then
  exit 0
fi
have cmake || fail "cmake (3.22 or newer) is missing" "Get it with:  make setup"
cd "$root"
# Another compiler needs an empty cache.
[ -f "$build/configured-with" ] && rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles"
# shellcheck disable=SC2086  # CMAKE_ARGS is a list of words
cmake --preset "$preset" -B "$build" -DLIBTORCH="${LIBTORCH:-}" ${CMAKE_ARGS:-}
printf '%s\n' "$settings" >"$build/configured-with"
