#!/usr/bin/env bash
# Builds and runs the tests under a sanitizer:  scripts/sanitize.sh [--short] asan|tsan [CTEST ARGUMENTS]
#
# asan      address and undefined behaviour, all test programs; those with libtorch use the plain library. The leak report
#           excludes memory that libtorch itself never frees (scripts/leaks.supp). Excludes ForkOfThreads: the sanitizer's
#           allocator does not release its locks in the child of a process with threads (before GCC 14)
# tsan      threads, the torch-free test programs: libtorch is not instrumented, and its internal synchronisation would be
#           reported as races. With libtorch only the watch over operations between devices (watch_test), with ranks as
#           threads over the simulated accelerator. Excludes the parameter servers: readers of their memory copy it and then
#           check whether it was written meanwhile (rondo/server/memory.h), which the sanitizer reports as a race. Excludes
#           races within ZeroMQ, which is not instrumented either (scripts/races.supp)
# --short   the part for continuous integration: under tsan code with several threads (channels, the engine and the
#           executor, without variations of sizes and orders), under asan the launcher, the ownership of buffers that the
#           engine writes, and the parsers of foreign text and files, including the readers of data sets with libtorch
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

targets=core_tests
selection=(-L core -E '^server\.')
short=
if [ "${1:-}" = "--short" ]; then
  short=1
  shift
fi
preset=${1:?asan or tsan}
shift
if [ "$preset" = asan ]; then
  targets="core_tests torch_tests"
  selection=(-L 'core|torch' -E 'ForkOfThreads')
fi
if [ -z "$short" ] && [ "$preset" = tsan ]; then
  targets="core_tests watch_test"
fi
if [ -n "$short" ] && [ "$preset" = tsan ]; then
  targets="channel_test collective_test"
  selection=(-R '^(channel|collective)\.' -E 'EngineMatrix|EngineFaults|Reduction|Codec|OrderOfAdditions|LargeBuffers|ScheduleTest|ExecutorProcesses')
elif [ -n "$short" ]; then
  targets="base_test env_test launch_test collective_test parser_test data_test"
  selection=(-R '^(base|env|launch|data)(\.|$)|^collective\.(.*/)?Background')
fi
"$root/scripts/configure.sh" "$preset"
# shellcheck disable=SC2086  # targets is a list of words
"$root/scripts/build.py" "$root/build/$preset" $targets
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 suppressions=$root/scripts/races.supp ${TSAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_stack_use_after_return=1 ${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$root/scripts/leaks.supp print_suppressions=0 ${LSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1 ${UBSAN_OPTIONS:-}"
results=$root/build/$preset/test-results
rm -rf "$results"
mkdir -p "$results"
ctest --test-dir "$root/build/$preset" "${selection[@]}" --parallel "$(nproc)" --output-on-failure --no-tests=error \
  --output-junit "$results/ctest.xml" "$@" || second_look ctest "$results" -- ctest --test-dir "$root/build/$preset"
if [ -n "$short" ] && [ "$preset" = asan ]; then
  "$root/build/$preset/bin/parser_test" --gtest_brief=1
fi
if [ -z "$short" ] && [ "$preset" = tsan ]; then
  "$root/build/$preset/bin/watch_test" --gtest_brief=1
fi
