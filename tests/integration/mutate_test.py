"""Damaged and hostile inputs, and outputs that cannot be written: tests/mutate in short; `make mutate` runs thousands."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutate"))

import corpus  # noqa: E402
import crafted  # noqa: E402
import run as mutate  # noqa: E402

# Their inputs are made once, by the process that runs them.
pytestmark = pytest.mark.xdist_group("mutate")

# The same in every run, so that a failure is of a change and not of chance; `make mutate` draws its own.
SEED = 20
TORCH_FREE, ON_LIBTORCH = 250, 40


@pytest.fixture(scope="module")
def made(tmp_path_factory, request):
    binaries = pathlib.Path(request.getfixturevalue("rondo_bin")).resolve()
    root = tmp_path_factory.mktemp("mutate") / "corpus"
    return root, binaries, corpus.make(root, binaries)


@pytest.mark.parametrize("attack", crafted.all_attacks())
def test_attack(made, tmp_path, attack):
    root, binaries, _ = made
    assert crafted.all_attacks()[attack](crafted.Workplace(binaries, root, tmp_path, mutate.environment(tmp_path))) == []


@pytest.mark.parametrize("torch, count", [(False, TORCH_FREE), (True, ON_LIBTORCH)])
def test_damaged_inputs(made, torch, count):
    root, binaries, cases = made
    of_kind = [case for case in cases if case.torch == torch]
    found, ran = mutate.run_many(root, binaries, of_kind, SEED, range(count), workers=2)
    assert found == []
    assert ran == count
