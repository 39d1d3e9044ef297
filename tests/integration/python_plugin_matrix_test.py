"""rondo_torch: every operation x element type x {Work kept, dropped, future, two groups, timeout}, with Gloo as the
reference."""
import json
import pathlib

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parent / "python_plugin" / "matrix.py"


@pytest.mark.parametrize("size, hosts", [(2, 1), pytest.param(3, 1, marks=pytest.mark.long), pytest.param(3, 2, marks=pytest.mark.long)])
def test_operations_equal_gloo_for_every_wait(size, hosts, python_ranks):
    """On two hosts (`make nightly STEPS=long`) ranks 0 and 1 share one."""
    ranks = python_ranks(PROGRAM, size, timeout=600, hosts=hosts)
    for process, _, errors in ranks:
        assert process.returncode == 0, errors[-4000:]
    reports = [json.loads(output.splitlines()[-1]) for _, output, _ in ranks]
    assert all(report["checked"] > 3500 for report in reports), reports
    print(f"{size} ranks: {[report['checked'] for report in reports]} cases; Gloo refuses {reports[0]['refused_by_gloo']}")
