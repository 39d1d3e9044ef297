"""The output of `rondo plan --fsdp2`, applied by PyTorch: the losses of plain FSDP2, and the planned memory."""
import json
import pathlib

import pytest

MIB = 2**20
BLOCK = {"forward_s": 0.01, "backward_s": 0.02, "parameter_bytes": 2 * MIB, "gradient_bytes": 2 * MIB,
         "optimizer_bytes": 4 * MIB, "activation_bytes": MIB, "strategies": ["zero3", "zero3_keep"]}
LINK = {"ranks": 2, "collectives": {name: [[4096, 0.001], [4 * MIB, 0.03]]
                                    for name in ("all_reduce", "reduce_scatter", "all_gather")}}


@pytest.fixture
def plan(rondo, tmp_path):
    """Returns the file of the plan for a limit in FSDP2's terms."""

    def make(name, limit):
        profile = {"format": "rondo-profile-1", "model": "blocks", "link": LINK,
                   "units": [{"name": unit, **BLOCK} for unit in ("root", "h.0", "h.1", "h.2", "h.3")]}
        (tmp_path / "profile.json").write_text(json.dumps(profile))
        result = rondo("plan", tmp_path / "profile.json", "--ranks", 2, "--memory-limit", limit, "--fsdp2",
                       tmp_path / name, "--quiet", "--plan-time-limit", "30s")
        assert result.returncode == 0, result.stderr
        return tmp_path / name

    return make


def test_a_plan_trains_with_pytorch(plan, interpreter, clean_environment, tmp_path):
    # A roomy limit, and about the smallest feasible one.
    files = [plan("roomy.json", "64MiB"), plan("tight.json", "28MiB")]
    program = pathlib.Path(__file__).with_name("fsdp2_ranks.py")
    for rank in interpreter.run([([program, f"file://{tmp_path}/store", rank, 2, tmp_path / "out.json", "plain", *files], clean_environment)
                                 for rank in range(2)], tmp_path, 300):
        assert rank.returncode == 0, rank.err
    plain, roomy, tight = json.loads((tmp_path / "out.json").read_text())
    kept, gathered = ([unit["name"] for unit in json.loads(file.read_text())["units"] if not unit["reshard_after_forward"]]
                      for file in files)
    assert len(kept) > len(gathered), (kept, gathered)
    assert roomy["losses"] == pytest.approx(plain["losses"], rel=1e-6)
    assert tight["losses"] == pytest.approx(plain["losses"], rel=1e-6)
    assert tight["peak_bytes"] < roomy["peak_bytes"]
