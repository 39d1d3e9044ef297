#!/usr/bin/env bash
# Runs clang-tidy on all C++ files of the project, on the given files, or on changed ones:  scripts/tidy.sh [--changed |
# FILE...]
#
# Uses a separate build folder, configured for clang, so that clang-tidy can read the precompiled header. With it a file
# with libtorch takes seconds instead of half a minute. Only that header is compiled there.
#
# --changed compares with RONDO_BASE, else with the merge base of this branch and origin's default branch, else with the
# last commit but one. A header is checked within its .cpp, or within one that includes it. Beyond RONDO_TIDY_LIMIT
# files (40) the other files are named and left to `make nightly`, which checks all.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Prints the commit that --changed compares with, or nothing in a clone of one commit.
base_commit() {
  local base
  if [ -n "${RONDO_BASE:-}" ]; then
    git rev-parse --verify "$RONDO_BASE^{commit}"
    return
  fi
  base=$(git merge-base HEAD origin/HEAD 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=$(git rev-parse --verify --quiet HEAD~1 || true)
  fi
  printf '%s' "$base"
}

# Prints the source within which a header is checked, or nothing if no source includes it through at most $2 headers.
source_of() {
  local header=$1 headers=${2:-2} includer
  if [ -f "${header%.h}.cpp" ]; then
    printf '%s\n' "${header%.h}.cpp"
    return
  fi
  includer=$(git grep -lF "\"$header\"" -- '*.cpp' | sed -n 1p) || true
  if [ -n "$includer" ]; then
    printf '%s\n' "$includer"
  elif [ "$headers" -gt 0 ]; then
    includer=$(git grep -lF "\"$header\"" -- '*.h' | sed -n 1p) || true
    [ -z "$includer" ] || source_of "$includer" $((headers - 1))
  fi
}

changed_files() {
  local file
  git diff --name-only --diff-filter=d "$1" -- '*.cpp' '*.h' | while read -r file; do
    if [[ $file == *.h ]]; then source_of "$file"; else printf '%s\n' "$file"; fi
  done | sort -u
}

cd "$root"
build=$root/build/tidy
configure_clang "$build" -DRONDO_UNITY=OFF
# Adds the flags of sources that are newer than the configuration.
cmake --build "$build" --target rondo_torch_header rondo_torch_header_of_tests >/dev/null
# Files outside this configuration have no flags.
known() { while read -r file; do grep -qF "\"file\": \"$root/$file\"" "$build/compile_commands.json" && printf '%s\n' "$file"; done; true; }

if [ "${1:-}" = --changed ]; then
  base=$(base_commit)
  [ -n "$base" ] || fail "there is no commit to compare with" "Name one:  RONDO_BASE=COMMIT make tidy-changed"
  mapfile -t files < <(changed_files "$base" | known)
  limit=${RONDO_TIDY_LIMIT:-40}
  say "${#files[@]} files to check since $(git log -1 --format='%h %s' "$base")"
  if [ "${#files[@]}" -gt "$limit" ]; then
    say "note: checking the first $limit of them, by name; RONDO_TIDY_LIMIT=${#files[@]} or make nightly also checks:"
    printf '  %s\n' "${files[@]:$limit}"
  fi
  set -- "${files[@]:0:$limit}"
  [ "$#" -gt 0 ] || exit 0
elif [ "$#" -eq 0 ]; then
  mapfile -t files < <(git ls-files '*.cpp' | known)
  set -- "${files[@]}"
fi
# It counts suppressed warnings of system headers on standard error; only findings matter.
if ! printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -n 1 clang-tidy -p "$build" --quiet \
  2> >(grep -v 'warnings\? generated' >&2); then
  fail "clang-tidy has findings (above)"
fi
say "clang-tidy found nothing in $# files"
