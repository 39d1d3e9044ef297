#!/usr/bin/env bash
# Builds and runs the torch-free tests under a sanitizer:  scripts/sanitize.sh [--short] asan|tsan [CTEST ARGUMENTS]
#
# --short   what continuous integration has time for: under tsan the code in which threads meet (channels, the engine and
#           the executor, without what varies sizes and orders only), under asan the parsers of foreign text and files
#
# libtorch itself is not instrumented: the thread sanitizer would report its internal synchronisation as races.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

targets=core_tests
selection=(-L core)
short=
if [ "${1:-}" = "--short" ]; then
  short=1
  shift
fi
preset=${1:?asan or tsan}
shift
if [ -n "$short" ] && [ "$preset" = tsan ]; then
  targets="channel_test collective_test"
  selection=(-R '^(channel|collective)\.' -E 'EngineMatrix|EngineFaults|Reduction|Codec|OrderOfAdditions|LargeBuffers|PlanTest|ExecutorProcesses')
elif [ -n "$short" ]; then
  targets="env_test parser_test"
  selection=(-R '^env\.')
fi
"$root/scripts/configure.sh" "$preset"
# shellcheck disable=SC2086  # targets is a list of words
cmake --build "$root/build/$preset" --target $targets
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 ${TSAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_stack_use_after_return=1 ${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1 ${UBSAN_OPTIONS:-}"
ctest --test-dir "$root/build/$preset" "${selection[@]}" --parallel "$(nproc)" --output-on-failure --no-tests=error "$@"
if [ -n "$short" ] && [ "$preset" = asan ]; then
  "$root/build/$preset/bin/parser_test" --gtest_brief=1
fi
