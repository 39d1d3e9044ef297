"""rondo_torch: every operation x element type x {Work kept, dropped, future, two groups, timeout}, with Gloo as the
reference."""
import json
import pathlib

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parent / "python_plugin" / "matrix.py"


@pytest.mark.parametrize("size, hosts, share", [(2, 1, 5), *(pytest.param(size, hosts, 1, marks=pytest.mark.long)
                                                             for size, hosts in ((2, 1), (3, 1), (3, 2)))])
def test_operations_equal_gloo_for_every_wait(size, hosts, share, python_ranks):
    """A fifth of the cases; `make nightly STEPS=long` runs all, also on two hosts, of which ranks 0 and 1 share one."""
    ranks = python_ranks(PROGRAM, size, timeout=600, env={"RONDO_MATRIX_SHARE": str(share)}, hosts=hosts)
    for rank in ranks:
        assert rank.returncode == 0, rank.err[-4000:]
    reports = [json.loads(rank.out.splitlines()[-1]) for rank in ranks]
    assert all(report["checked"] > 3500 / share for report in reports), reports
    print(f"{size} ranks: {[report['checked'] for report in reports]} cases; Gloo refuses {reports[0]['refused_by_gloo']}")
