"""`rondo bench collectives --explain` and `--algorithm`: plans printed, drawn and run beside the engine."""
import json

import pytest
from algorithms import ALGORITHMS

SHORT = ["--bursts", "1", "--burst-time", "1ms"]


@pytest.fixture
def collectives(run, rondo_bin):
    def run_collectives(*flags):
        return run(rondo_bin / "rondo", "bench", "collectives", *flags, timeout=180)

    return run_collectives


def json_of(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_ring_as_a_table(collectives):
    result = collectives("--explain", "ring", "--ranks", "4")
    assert result.returncode == 0, result.stderr
    assert "ring all_reduce, 4 ranks, 64.0 KiB: 6 rounds" in result.stdout
    first = [line.split() for line in result.stdout.splitlines() if line.startswith("      0      0 ")]
    # Rank 0 forwards its last part and adds to the previous one: it sends another part than it receives.
    assert first == [["0", "0", "send", "to", "rank", "1", "16384", "data", "[49152,", "65536)"],
                     ["0", "0", "receive", "and", "add", "from", "rank", "3", "16384", "data", "[32768,", "49152)"]]


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "double_binary_tree", "hierarchical"])
def test_a_plan_as_json(collectives, algorithm):
    plan = json_of(collectives("--explain", algorithm, "--ranks", 6, "--bytes", "9KiB", "--hosts", 2, "--json", "-"))
    assert (plan["algorithm"], plan["operation"], plan["ranks"], plan["bytes"]) == (algorithm, "all_reduce", 6, 9216)
    sent = [0] * 6
    received = [0] * 6
    for step in plan["steps"]:
        assert 0 <= step["round"] < plan["rounds"]
        if step["kind"] == "send":
            sent[step["rank"]] += step["bytes"]
            received[step["peer"]] += step["bytes"]
    assert sent == [cost["bytes_sent"] for cost in plan["costs"]]
    assert received == [cost["bytes_received"] for cost in plan["costs"]]
    for cost in plan["costs"]:
        assert cost["rounds"] == cost["closed_form"]["rounds"] == plan["rounds"]


def test_operations_dtypes_and_roots(collectives):
    plan = json_of(collectives("--explain", "naive", "--ranks", 3, "--operation", "broadcast", "--root", 2,
                               "--dtype", "bfloat16", "--bytes", "6", "--json", "-"))
    assert {(step["rank"], step["kind"]) for step in plan["steps"]} == {(2, "send"), (0, "recv"), (1, "recv")}
    grid = json_of(collectives("--explain", "torus_2d", "--ranks", 12, "--rows", 2, "--json", "-"))
    assert grid["rounds"] == 2 * (1 + 5)


@pytest.mark.parametrize("channel", ["threads", "shm", "tcp"])
def test_every_algorithm_beside_the_engine(collectives, channel):
    rows = json_of(collectives(*SHORT, "--algorithm", "all", "--channel", channel, "--ranks", 3, "--sizes", "1200B,96KiB",
                               "--operations", "all_reduce,all_gather", "--hosts", 2, "--json", "-"))
    assert all(row["correct"] and row["p50_us"] > 0 for row in rows), rows
    plans = {(row["algorithm"], row["operation"]) for row in rows if row["channel"] == channel and row["algorithm"] != "auto"}
    assert {name for name, operation in plans if operation == "all_reduce"} == set(ALGORITHMS)
    assert {name for name, operation in plans if operation == "all_gather"} == set(ALGORITHMS) - {"double_binary_tree"}
    assert {row["registered"] for row in rows if row["algorithm"] == "auto"} == {True, False}


@pytest.mark.parametrize("flags, named", [
    (["--explain", "rings"], ["rings", "ring", "halving_doubling"]),
    (["--explain", "ring", "--operation", "barrier"], ["barrier", "all_reduce", "reduce_scatter"]),
    (["--explain", "double_binary_tree", "--operation", "all_gather"], ["double_binary_tree", "all_gather", "broadcast"]),
    (["--explain", "ring", "--root", "9"], ["root 9"]),
    (["--explain", "torus_2d", "--ranks", "6", "--rows", "4"], ["6 ranks", "4 rows"]),
    (["--explain", "ring", "--hosts", "5"], ["--hosts", "5"]),
    (["--root", "1"], ["--explain"]),
    (["--html", "page.html"], ["--explain"]),
    (["--algorithm", "rings"], ["--algorithm", "rings", "halving_doubling"]),
    (["--algorithm", "double_binary_tree", "--operations", "all_gather"], ["--algorithm", "double_binary_tree", "all_gather"]),
    (["--algorithm", "ring", "--channel", "pigeon"], ["--channel", "pigeon", "threads", "shm", "tcp"]),
])
def test_wrong_usage_names_what_there_is(collectives, flags, named):
    result = collectives(*flags)
    assert result.returncode == 2, result.stderr
    for word in named:
        assert word in result.stderr
    assert len(result.stderr.splitlines()) <= 2


def test_a_page_that_cannot_be_written_is_named(collectives):
    result = collectives("--explain", "ring", "--html", "/nowhere/page.html")
    assert result.returncode == 1
    assert "/nowhere/page.html" in result.stderr


def test_the_plot_draws_a_line_for_each_algorithm(run, repository, tmp_path):
    def row(algorithm, channel, size, us, correct=True):
        return {"system": "rondo", "operation": "all_reduce", "algorithm": algorithm, "channel": channel, "registered": False,
                "ranks": 2, "dtype": "float32", "bytes": size, "p50_us": us, "correct": correct}

    rows = [row(name, "shm", size, size / 10 + 3) for name in ("auto", "ring", "<naive>") for size in (4, 1024, 1 << 20)]
    rows += [row("ring", "tcp", 4, 50.0), row("direct", "shm", 4, 1.0, correct=False)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    script = repository / "bench" / "plot_collectives.py"
    result = run("python3", script, "rows.json", "out/plot", "--channel", "shm")
    assert result.returncode == 0, result.stderr
    picture = (tmp_path / "out" / "plot-all_reduce-2.svg").read_text()
    assert picture.count("<polyline") == 3 and "&lt;naive&gt; shm" in picture and "tcp" not in picture
    (tmp_path / "rows.json").write_text("[]")
    assert "no rows" in run("python3", script, "rows.json", "plot").stderr
