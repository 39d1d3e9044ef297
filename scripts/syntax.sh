#!/usr/bin/env bash
# Checks all layers and programs, or some layers, with the front end of clang or another compiler, several files at once as they
# are built. Test programs and examples are only checked if they are named; `make nightly` builds them with clang:
#
#   [COMPILER=g++-11] scripts/syntax.sh [LAYER | PROGRAM | TEST_PROGRAM...]
#
# BUILD=FOLDER checks what is configured there, as scripts/cross.sh does for another processor.
# A second compiler finds errors that g++ accepts, in a fraction of the time of its build.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

compiler=${COMPILER:-clang++}
require "${compiler/clang++/clang}" "$compiler"
build=${BUILD:-$root/build/${compiler/clang++/clang}}
if [ -z "${BUILD:-}" ]; then
  settings=()
  [ "$compiler" = clang++ ] || settings=("-DCMAKE_CXX_COMPILER=$compiler")
  [[ $compiler != g++* ]] || settings+=("-DRONDO_PRECOMPILED_HEADERS=<torch/types.h>")
  configure_clang "$build" "${settings[@]}"
fi
commands=$build/syntax_commands
"$root/.venv/bin/python" - "$build" "$@" >"$commands" <<'END' || exit 1
import json, re, shlex, sys

build, layers = sys.argv[1], sys.argv[2:]
names = f"(rondo[_-])?({'|'.join(map(re.escape, layers))})" if layers else r"rondo[_-][\w-]+"
wanted = re.compile(rf"/{names}\.dir/")
commands = []
for entry in json.load(open(f"{build}/compile_commands.json")):
    words = shlex.split(entry["command"])
    output = words.index("-o")
    # Skips the precompiled header's source: its output would go to standard output.
    if wanted.search("/" + words[output + 1]) and "/rondo_torch_header" not in entry["file"]:
        del words[output:output + 2]
        commands.append((entry, words))
if not commands:
    sys.exit(f"error: no such layer: {' '.join(layers)}")
for entry, words in commands:
    print(f"cd {shlex.quote(entry['directory'])} && {shlex.join(words)} -fsyntax-only", end="\0")
END
# Builds only the precompiled headers that the wanted files use: only tests need the header of tests.
headers=$({ grep -aoE 'rondo_torch_header(_of_tests)?\.dir' "$commands" || true; } | sort -u | sed 's/\.dir$//')
# shellcheck disable=SC2086  # headers is a list of words
[ -z "$headers" ] || cmake --build "$build" --target $headers >/dev/null
xargs -0 -P "$(nproc)" -n 1 bash -c <"$commands" || fail "$compiler has findings (above)"
say "$compiler found no errors"
