"""Reference data of the C++ tests equals that of the installed PyTorch."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "data"))

import make_distributed_sampler_reference as reference_maker  # noqa: E402


def test_the_stored_reference_is_pytorchs_distributed_sampler():
    stored = (ROOT / "tests" / "data" / "distributed_sampler_reference.json").read_text()
    assert stored == reference_maker.reference()
