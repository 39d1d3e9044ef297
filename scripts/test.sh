#!/usr/bin/env bash
# Runs every test on a finished build and ends with one line of counts:  scripts/test.sh PRESET
#
# C++ tests run under ctest, integration tests (ranks as processes) under pytest. Both write JUnit files, which are
# summed up in one line "N passed, M failed, K skipped". Exits non-zero when a test failed or a runner did not finish.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=$1
build=$root/build/$preset
python=$root/.venv/bin/python
results=$build/test-results
rm -rf "$results"
mkdir -p "$results"

status=0
ctest --test-dir "$build" --parallel "$(nproc)" --output-on-failure --output-junit "$results/ctest.xml" \
  --progress || status=1
RONDO_BIN=$build/bin "$python" -m pytest "$root/tests/integration" --junitxml "$results/pytest.xml" || status=1
"$python" "$root/scripts/count_tests.py" "$results/ctest.xml" "$results/pytest.xml" || status=1
exit "$status"
