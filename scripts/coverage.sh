#!/usr/bin/env bash
# Builds everything with coverage counters, runs the tests, and prints the share of executed lines by layer:
#
#   scripts/coverage.sh [--report]     --report: no build and no tests, only the table of the last run
#
# The details, with the lines that were not executed, are in build/coverage/coverage.txt. The exit code is that of the
# tests.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=$root/build/coverage
status=0
if [ "${1:-}" != --report ]; then
  "$root/scripts/configure.sh" coverage
  "$root/scripts/build.py" "$build"
  find "$build" -name '*.gcda' -delete
  # These tests build again with the installed libraries, which require the counters' runtime.
  PYTEST_ADDOPTS="--ignore=$root/tests/integration/external_test.py" "$root/scripts/test.sh" coverage || status=1
fi
"$root/.venv/bin/python" "$root/scripts/coverage.py" "$build"
exit "$status"
