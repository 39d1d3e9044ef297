#!/usr/bin/env bash
# Formats every C++ file of the project with the clang-format of .venv:  scripts/format.sh [--check]
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

formatter=$root/.venv/bin/clang-format
[ -x "$formatter" ] || fail "$formatter is missing" "Get it with:  make setup"
cd "$root"

files() { git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.hpp'; }

if [ "${1:-}" != "--check" ]; then
  files | xargs -0 -r -P "$(nproc)" -n 20 "$formatter" -i --style=file
  exit 0
fi
# One error per file suffices: the fix is the same for all.
if ! files | xargs -0 -r -P "$(nproc)" -n 1 "$formatter" --dry-run -Werror --ferror-limit=1 --style=file; then
  fail "the files named above are not formatted as .clang-format says" "Fix them with:  make format"
fi
say "all C++ files are formatted"
