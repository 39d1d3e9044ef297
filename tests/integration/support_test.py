"""docs/support.md is correct: for each strategy all working features work at once, and the others are refused by
name."""
import pytest
import support
from marks import long


@pytest.fixture(scope="module")
def page():
    return support.read_table()


def test_the_page_has_every_strategy(page, rondo):
    declared = rondo("train", "--help-all", "--json", "-").stdout
    for strategy in support.STRATEGIES:
        assert f'"{strategy}"' in declared
    assert list(page) == list(support.STRATEGIES)
    assert all(list(cells) == list(support.FEATURES) for cells in page.values())


@pytest.mark.parametrize("strategy", [name if name in support.SAMPLE else long(name) for name in support.STRATEGIES])
def test_what_the_page_says_of(strategy, page, rondo, clean_environment, tmp_path):
    runs = support.Runs(rondo.program, tmp_path, clean_environment)
    cells = page[strategy]
    works = [feature for feature in support.FEATURES if cells[feature] == support.WORKS]
    # Units need another model, which goes on under another strategy in the same run.
    apart = [feature for feature in (support.UNITS, support.ALONE) if feature in works]
    if apart:
        works = [feature for feature in works if feature not in apart]
        assert runs.outcome(strategy, apart) == support.WORKS
    assert runs.outcome(strategy, [feature for feature in works if support.EXCLUDES.get(feature) not in works]) == support.WORKS
    for feature in support.FEATURES:
        if cells[feature] != support.WORKS:
            assert cells[feature] == "refused"
            said = runs.outcome(strategy, [feature])
            assert said != support.WORKS and support.is_refusal_by_name(strategy, feature, said), f"{feature}: {said}"
