# Helpers that the scripts share; sourced, not run.
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

# A build folder for clang's tools, whose compilers must agree with g++'s about nothing:  configure_clang FOLDER [ARGUMENTS]
configure_clang() {
  local folder=$1 tool
  shift
  for tool in clang++ clang-tidy; do
    have "$tool" || fail "$tool is missing" "Get it with:  sudo apt-get install clang clang-tidy"
  done
  if [ ! -f "$folder/build.ninja" ]; then
    cmake -S "$root" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=clang++ \
      "-DRONDO_PRECOMPILED_HEADERS=<torch/torch.h>" -DLIBTORCH="${LIBTORCH:-}" "$@" >/dev/null
  else
    cmake "$folder" >/dev/null # the list of commands follows changed CMake files and new sources
  fi
}

# The first word of every line of a list that is neither a comment nor blank.
list_entries() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$1"; }

# Looks again at the tests of a runner that failed, as second_look.py says; fails where RONDO_UNSTEADY=fail.
second_look() {
  [ "${RONDO_UNSTEADY:-}" != fail ] && "$root/scripts/second_look.py" "$@"
}
