#!/usr/bin/env bash
# Builds and runs the torch-free tests under a sanitizer:  scripts/sanitize.sh asan|tsan [CTEST ARGUMENTS]
#
# libtorch itself is not instrumented: the thread sanitizer would report its internal synchronisation as races.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=$1
shift
"$root/scripts/configure.sh" "$preset"
cmake --build "$root/build/$preset" --target core_tests
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 ${TSAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_stack_use_after_return=1 ${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1 ${UBSAN_OPTIONS:-}"
ctest --test-dir "$root/build/$preset" -L core --parallel "$(nproc)" --output-on-failure --no-tests=error "$@"
