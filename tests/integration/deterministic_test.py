"""--deterministic: training has the same bits on every engine, algorithm and layout of hosts."""
import json

import pytest


@pytest.fixture
def train(rondo, rondo_bin, tmp_path):
    """Trains an MLP on three ranks; returns the losses."""
    data = tmp_path / "table.csv"
    rows = [f"{(i * 37 % 101) / 50},{(i * 53 % 97) / 40},{(i * i) % 3}" for i in range(300)]
    data.write_text("\n".join(["a,b,label", *rows]) + "\n")

    def run(name, *flags, prefix=(), **variables):
        finished = rondo("run", "-n", 3, *prefix, rondo_bin / "rondo-train", "--data", data, "--model", "mlp",
                         "--batch-size", 16, "--steps", 30, "--lr", 0.05, "--log-every", 1, "--run-dir", tmp_path / name,
                         *flags, env=variables, timeout=120)
        assert finished.returncode == 0, finished.stderr
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return [row["loss"] for row in map(json.loads, lines) if row["rank"] == 0 and "loss" in row]

    return run


TWO_HOSTS = ("bash", "-c", 'RONDO_HOST=host$((RANK % 2)) exec "$@"', "train")


def test_the_same_losses_on_every_engine_and_layout(train):
    native = train("native", "--deterministic")
    assert len(native) >= 30
    assert train("ring", "--deterministic", RONDO_ALGORITHM="ring") == native
    assert train("gloo", "--deterministic", "--backend", "gloo") == native
    assert train("hosts", prefix=TWO_HOSTS, RONDO_DETERMINISTIC="1") == native
    # The test is meaningful: other results are possible.
    assert train("plain", "--backend", "gloo") != native
