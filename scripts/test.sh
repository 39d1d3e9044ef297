#!/usr/bin/env bash
# Runs all tests on a finished build and ends with one line of counts:  scripts/test.sh PRESET
#
# C++ tests run under ctest, integration tests (ranks as processes) under pytest. Both write JUnit files, which are
# summed in one line "N passed, M failed, K skipped". Exits non-zero if a test failed or a runner did not finish. A
# failed test that then passed three times alone is named as unsteady above that line; RONDO_UNSTEADY=fail counts it as
# failed.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=$1
build=$root/build/$preset
python=$root/.venv/bin/python
results=$build/test-results
rm -rf "$results"
mkdir -p "$results"

# One test more at a time than there are processors: many wait for processes and deadlines more than they compute.
jobs=$(($(nproc) + 1))
status=0
ended=() # results of runners that did not pass
began=$SECONDS
took() {
  say "$1 took $((SECONDS - began)) s"
  began=$SECONDS
}
ctest --test-dir "$build" --parallel "$jobs" --output-on-failure --output-junit "$results/ctest.xml" --progress || {
  ended+=("ctest ended with exit code $? after $((SECONDS - began)) s")
  second_look ctest "$results" -- ctest --test-dir "$build" || status=1
}
took "ctest"
# Then, one after the other, tests that need the whole machine. scripts/nightly.sh runs those of the project's own tools,
# and long ones.
export RONDO_BIN=$build/bin
export RONDO_MATMUL_MEASUREMENTS=$results/matmul.json # both measure kernels at most once
pytest() {
  "$python" -m pytest "$root/tests/integration" --junitxml "$results/$1.xml" "${@:2}" || {
    ended+=("$1 ended with exit code $? after $((SECONDS - began)) s")
    second_look pytest "$results" --name "$1" -- "$python" -m pytest || status=1
  }
  took "$1"
}
cd "$root"
pytest pytest -m "not alone and not tooling and not long" -n "$jobs"
pytest pytest-alone -m "alone and not tooling and not long"
# Repeated at the end for readers of the last lines only.
for line in "${ended[@]}"; do say "$line"; done
"$python" "$root/scripts/count_tests.py" "$results/ctest.xml" "$results/pytest.xml" "$results/pytest-alone.xml" || status=1
exit "$status"
