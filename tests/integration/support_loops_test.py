"""docs/support.md is correct for ways of training: runs every cell of its second table, of strategies that
support_test.py leaves out and of those that it does not have; `make nightly STEPS=long` runs the others."""
import pytest
import support
import support_loops
from marks import long


def test_the_page_has_every_strategy(rondo):
    declared = rondo("train", "--help-all", "--json", "-").stdout
    page = support_loops.read_table()
    for strategy in support_loops.STRATEGIES:
        assert f'"{strategy}"' in declared and f"| `{strategy}` |" in page
    assert page.count("\n") == len(support_loops.STRATEGIES) + 2


@pytest.mark.parametrize("strategy", [long(name) if name in support.SAMPLE else name for name in support_loops.STRATEGIES])
def test_what_the_page_says_of(strategy, rondo_bin, clean_environment):
    cells = {way: support_loops.cell(rondo_bin, strategy, way, clean_environment) for way in support_loops.WAYS}
    assert support_loops.table_of({strategy: cells}).splitlines()[2] in support_loops.read_table()
