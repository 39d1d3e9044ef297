"""`bench/best_mpi.py` picks the fastest MPI by size, and measures the MPIs that it installs."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import best_mpi  # noqa: E402


def row(system, size, p50, smallest, registered=False, call="work"):
    return {"system": system, "bytes": size, "p50_us": p50, "min_us": smallest, "registered": registered, "call": call, "ranks": 2}


def test_ratios_are_to_the_fastest_mpi():
    rows = [row("rondo", 4, 2, 1, True, "direct"), row("rondo", 4, 8, 8, True), row("rondo", 4, 4, 2, False, "direct"),
            row("mpich", 4, 6, 1), row("impi", 4, 5, 2),
            row("rondo", 64, 1, 1, True, "direct"), row("rondo", 64, 1, 1, False, "direct"), row("mpich", 64, 3, 3), row("impi", 64, 9, 9)]
    small, large = best_mpi.compare(rows, 0)
    assert small["best"] == "impi" and large["best"] == "mpich"
    assert small["ratio_p50"] == {"registered": 2.5, "ordinary": 1.25}
    assert small["ratio_min"] == {"registered": 1.0, "ordinary": 0.5}
    lines = best_mpi.section({"versions": {"mpich": "5"}, "realtime": False, "rows": [small, large]})
    assert any(line.startswith("| 4 B | impi | 5 us | 4 us | 2 us | 1.25 (1.25 to 1.25); 0.50 |") for line in lines), lines


def test_oversubscribed_ranks_leave_out_a_spinning_mpi():
    assert best_mpi.spins_alone("mpich", 1000, True)
    assert not best_mpi.spins_alone("mpich", 1, True)
    assert not best_mpi.spins_alone("mpich", 1000, False) and not best_mpi.spins_alone("openmpi", 1000, True)


@pytest.mark.tooling
def test_every_mpi_is_installed_and_right(rondo_bin, tmp_path):
    target = tmp_path / "out.json"
    result = subprocess.run([sys.executable, ROOT / "bench" / "best_mpi.py", "--ranks", "2", "--sizes", "4B,64KiB", "--rounds", "1",
                             "--bursts", "1", "--json", target], capture_output=True, text=True, timeout=900,
                            env={**os.environ, "RONDO_BIN": str(rondo_bin)})
    assert result.returncode == 0, result.stderr
    assert "| 64 KiB | " in result.stdout
    results = json.loads(target.read_text())
    assert set(results["versions"]) == {"openmpi", "mpich", "impi"}
    assert [r["bytes"] for r in results["rows"]] == [4, 65536]
    for r in results["rows"]:
        assert set(r["p50_us"]) == {"openmpi", "mpich", "impi", "ordinary", "registered"}
        assert all(value > 0 for value in r["p50_us"].values())
