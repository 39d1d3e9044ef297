#!/usr/bin/env bash
# Builds everything with counters in every line, runs the tests, and prints which share of the lines they run, by layer:
#
#   scripts/coverage.sh [--report]     --report: no build and no tests, only the table of what ran last
#
# The details, with the lines that nothing runs, are in build/coverage/coverage.txt. The exit code is that of the tests.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=$root/build/coverage
status=0
if [ "${1:-}" != --report ]; then
  "$root/scripts/configure.sh" coverage
  "$root/scripts/build.py" "$build"
  find "$build" -name '*.gcda' -delete
  # Those build once more, against the installed libraries, which need the counters' own.
  PYTEST_ADDOPTS="--ignore=$root/tests/integration/external_test.py" "$root/scripts/test.sh" coverage || status=1
fi
"$root/.venv/bin/python" "$root/scripts/coverage.py" "$build"
exit "$status"
