"""`rondo simulate` of published configurations has the shape of the published results (bench/scale.py;
docs/scale.md)."""
import sys

import pytest
from measured import REPOSITORY


@pytest.fixture(scope="module")
def scale(rondo_bin):
    sys.path.insert(0, str(REPOSITORY / "bench"))
    import scale  # noqa: PLC0415

    scale.BIN = rondo_bin
    return scale


def test_throughput_per_rank_is_near_megatron(scale):
    runs = scale.megatron_runs()
    ratios = [run["tflops"] / run["published"] for run in runs]
    assert all(0.9 <= ratio <= 1.1 for ratio in ratios), runs
    # From 32 to 3,072 ranks the throughput per rank stays equal or grows with the model.
    for before, after in zip(runs, runs[1:]):
        assert after["tflops"] >= 0.98 * before["tflops"], runs
    assert runs[-1]["tflops"] > 1.1 * runs[0]["tflops"]
    assert all(run["peak_gib"] < 80 for run in runs), runs


def test_60_billion_parameters_scale_superlinearly(scale):
    runs = scale.zero_runs()
    assert [run["ranks"] for run in runs] == scale.ZERO_RANKS
    for before, after in zip(runs, runs[1:]):
        assert after["batch"] >= before["batch"] and after["samples_per_s_rank"] > before["samples_per_s_rank"], runs
    assert runs[-1]["batch"] > runs[0]["batch"]
    assert runs[-1]["samples_per_s_rank"] > 1.1 * runs[0]["samples_per_s_rank"]


def test_more_stages_idle_longer(scale):
    runs = {run["mesh"]: run for run in scale.mesh_runs()}
    assert max(run["ranks"] for run in runs.values()) == 16384
    assert runs["pipeline=16,data=128,tensor=8"]["bubble"] < runs["pipeline=64,data=32,tensor=8"]["bubble"]
    assert runs["pipeline=8,data=16,tensor=8"]["bubble"] < runs["pipeline=32,data=4,tensor=8"]["bubble"]
    # Stages divide a rank's parameters; replicas only divide the optimizer's state.
    assert runs["pipeline=8,data=1,tensor=8"]["peak_gib"] < runs["pipeline=1,data=8,tensor=8"]["peak_gib"]
    assert all(0 < run["computing"] <= 1 for run in runs.values())


def test_the_page_has_what_the_script_says(scale):
    page = (REPOSITORY / "docs" / "scale.md").read_text()
    for line in scale.tables():
        assert line in page, f"run bench/scale.py --docs: {line}"
