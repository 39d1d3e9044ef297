# Shared helpers of the scripts; sourced, not run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Fails if a program is missing, and says how to get it:  require "DEBIAN'S PACKAGES" PROGRAM...
require() {
  local packages=$1 program
  shift
  for program in "$@"; do
    have "$program" || fail "$program is missing" "Get it with:  sudo apt-get install $packages"
  done
}

# Configures a build folder for clang's tools, separate from the folders of g++:  configure_clang FOLDER [ARGUMENTS]
configure_clang() {
  local folder=$1
  shift
  require "clang clang-tidy" clang++ clang-tidy
  if [ ! -f "$folder/build.ninja" ]; then
    cmake -S "$root" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=clang++ \
      "-DRONDO_PRECOMPILED_HEADERS=<torch/torch.h>" -DLIBTORCH="${LIBTORCH:-}" "$@" >/dev/null
  else
    cmake "$folder" >/dev/null # updates the list of commands after changes of CMake files and sources
  fi
}

# Prints the first word of every line of a list that is neither a comment nor blank.
list_entries() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$1"; }

# Runs a runner's failed tests again, see second_look.py; fails if RONDO_UNSTEADY=fail.
second_look() {
  [ "${RONDO_UNSTEADY:-}" != fail ] && "$root/scripts/second_look.py" "$@"
}
