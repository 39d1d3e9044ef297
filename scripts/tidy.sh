#!/usr/bin/env bash
# clang-tidy on every C++ file of the project, or on the files given:  scripts/tidy.sh [FILE...]
#
# A build folder of its own, configured for clang, so that the precompiled header is one that clang-tidy can read: with it a
# file on libtorch takes seconds instead of half a minute. Only that header is compiled there.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for tool in clang++ clang-tidy; do
  have "$tool" || fail "$tool is missing" "Get it with:  sudo apt-get update && sudo apt-get install clang clang-tidy"
done
build=$root/build/tidy
if [ ! -f "$build/build.ninja" ]; then
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=clang++ \
    -DLIBTORCH="${LIBTORCH:-}" >/dev/null
fi
cmake --build "$build" --target rondo_torch_header >/dev/null

cd "$root"
if [ "$#" -eq 0 ]; then
  # What the build knows: files that this configuration leaves out have no flags to be checked with.
  mapfile -t files < <(git ls-files '*.cpp' | while read -r file; do
    grep -q "\"file\": \"$root/$file\"" "$build/compile_commands.json" && printf '%s\n' "$file"
  done)
  set -- "${files[@]}"
fi
# It counts what it suppressed in system headers on standard error; only findings matter.
if ! printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -n 1 clang-tidy -p "$build" --quiet \
  2> >(grep -v 'warnings\? generated' >&2); then
  fail "clang-tidy has findings (above)"
fi
say "clang-tidy found nothing in $# files"
