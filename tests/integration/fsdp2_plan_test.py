"""What `rondo plan --fsdp2` writes, applied by PyTorch: the losses of plain FSDP2, and memory as the plan says."""
import json
import pathlib
import subprocess
import sys

import pytest

MIB = 2**20
BLOCK = {"forward_s": 0.01, "backward_s": 0.02, "parameter_bytes": 2 * MIB, "gradient_bytes": 2 * MIB,
         "optimizer_bytes": 4 * MIB, "activation_bytes": MIB, "strategies": ["zero3", "zero3_keep"]}
LINK = {"ranks": 2, "collectives": {name: [[4096, 0.001], [4 * MIB, 0.03]]
                                    for name in ("all_reduce", "reduce_scatter", "all_gather")}}


@pytest.fixture
def fsdp2(rondo, clean_environment, tmp_path):
    """Losses and peak bytes of two ranks under the plan for a limit; plain fully_shard without one."""

    def train(name, limit=None):
        words = ["plain"]
        plan = None
        if limit is not None:
            profile = {"format": "rondo-profile-1", "model": "blocks", "link": LINK,
                       "units": [{"name": unit, **BLOCK} for unit in ("root", "h.0", "h.1", "h.2", "h.3")]}
            (tmp_path / "profile.json").write_text(json.dumps(profile))
            words = [tmp_path / f"{name}.json"]
            result = rondo("plan", tmp_path / "profile.json", "--ranks", 2, "--memory-limit", limit, "--fsdp2", words[0],
                           "--quiet", "--time-limit", "2s")
            assert result.returncode == 0, result.stderr
            plan = json.loads(words[0].read_text())
        out = tmp_path / f"{name}-result.json"
        result = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             pathlib.Path(__file__).with_name("fsdp2_ranks.py"), *words, out],
            env=clean_environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        return json.loads(out.read_text()), plan

    return train


def test_a_plan_trains_with_pytorch(fsdp2):
    plain, _ = fsdp2("plain")
    roomy, kept = fsdp2("roomy", "64MiB")
    tight, gathered = fsdp2("tight", "30MiB")
    kept_units = [unit["name"] for unit in kept["units"] if not unit["reshard_after_forward"]]
    gathered_units = [unit["name"] for unit in gathered["units"] if not unit["reshard_after_forward"]]
    assert len(kept_units) > len(gathered_units), (kept_units, gathered_units)
    assert kept["approximated"] == gathered["approximated"] == []
    assert roomy["losses"] == pytest.approx(plain["losses"], rel=1e-6)
    assert tight["losses"] == pytest.approx(plain["losses"], rel=1e-6)
    assert tight["peak_bytes"] < roomy["peak_bytes"]
