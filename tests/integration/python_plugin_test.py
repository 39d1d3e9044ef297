"""rondo_torch, the plug-in for torch.distributed, as built in build/<preset>/python: results of forked ranks and
under `rondo run`, compared with Gloo; error messages; and installation by pip."""
import json
import pathlib
import re
import subprocess
import sys

import pytest
from launching import reserved_ports

PROGRAMS = pathlib.Path(__file__).resolve().parent / "python_plugin"
# For errors that are detected immediately, and not at the deadline of 100 s.
SOON_S = 30


@pytest.fixture
def python(interpreter, plugin_environment, tmp_path):
    """python(WORDS..., env={...}) runs a program, or -c and its text."""
    def run(*words, env=None):
        ended, = interpreter.run([(words, plugin_environment | (env or {}))], tmp_path, 600)
        return ended

    return run


def test_every_collective_gives_what_gloo_gives(python_ranks):
    for number, rank in enumerate(python_ranks(PROGRAMS / "collectives.py", 3)):
        assert (rank.returncode, rank.out) == (0, f"rank {number}: 512 comparisons\n"), rank.out + rank.err


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_strategies_of_pytorch_reach_the_losses_of_gloo(python, tmp_path, start):
    done = python(PROGRAMS / "training.py", f"file://{tmp_path}/store", 2, start)
    assert done.returncode == 0, done.out + done.err
    results = json.loads(done.out)
    assert set(results) == {"ddp", "zero", "fsdp2", "fsdp2_bfloat16", "fsdp2_own_buffers"}
    for strategy, (gloo, rondo) in results.items():
        assert rondo == pytest.approx(gloo, rel=1e-5), strategy
        assert gloo[-1] < gloo[0], f"{strategy} learns nothing: {gloo}"


def test_groups_meshes_and_forked_children(python_ranks):
    for rank in python_ranks(PROGRAMS / "groups.py", 4):
        assert (rank.returncode, rank.out) == (0, "groups: ok\n"), rank.out + rank.err


def test_the_launchers_memory_is_the_store(rondo, plugin_environment):
    done = rondo("run", "--nproc-per-node", 2, "--", sys.executable, PROGRAMS / "launched.py", env=plugin_environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("launched: ok") == 2


@pytest.mark.alone
def test_faults_are_named_on_every_rank(python_ranks):
    ranks = python_ranks(PROGRAMS / "faults.py", 3, timeout=120)
    reports = []
    for rank in ranks:
        lines = [line for line in rank.out.splitlines() if line.startswith("{")]
        assert lines, rank.err
        reports.append({report["what"]: report for report in map(json.loads, lines)})

    shows_both_sides = {
        "size": ["1000 x float32", "x float32", "all_reduce"],
        "dtype": ["10 x float32", "10 x float64"],
        "operation": ["barrier", "all_reduce(5 x float32"],
        "future": ["all_reduce(100 x float32", "x float32"],
    }
    for rank, by_what in enumerate(reports):
        for what, words in shows_both_sides.items():
            report = by_what[what]
            assert report["seconds"] < SOON_S, (rank, report)
            assert what == "future" or report["communication"], (rank, report)
            for word in words:
                assert word in report["message"], (rank, report)
        assert by_what["sparse"]["type"] == "UsageError" and "sparse" in by_what["sparse"]["message"].lower()
    late = reports[0]["timeout"]
    assert late["type"] == "TimeoutError" and late["ranks"] == [1, 2] and 0.15 < late["seconds"] < SOON_S, late
    # Rank 0 has given up the call, so it is an error for late ranks, too.
    for by_what in reports[1:]:
        assert {by_what[what]["type"] for what in ("late", "late again")} == {"TimeoutError"}, by_what
    for by_what in reports[:2]:
        lost = by_what["killed"]
        assert lost["type"] == "PeerLostError" and lost["ranks"] == [2] and lost["seconds"] < SOON_S, lost
        assert f"rank 2 (pid {ranks[2].pid})" in lost["message"], lost
    assert "killed" not in reports[2]


@pytest.mark.parametrize("algorithm", ["engine", "ring"])
def test_what_clients_of_torch_distributed_ask_for(algorithm, python_ranks):
    for number, rank in enumerate(python_ranks(PROGRAMS / "clients.py", 2, env={"RONDO_ALGORITHM": algorithm})):
        assert rank.returncode == 0, f"rank {number}: {rank.out}{rank.err[-4000:]}"
        assert [line.split(":")[0] for line in rank.out.splitlines()] == ["averages", "unequal_lists", "nested_futures", "power_sgd",
                                                                        "forked_child"]


@pytest.mark.parametrize("what", ["monitored_barrier", "init_process_group"])
def test_store_rank_may_end_after_last_call(what, interpreter, plugin_environment, tmp_path):
    with reserved_ports(1) as (port,):
        ranks = interpreter.run([([PROGRAMS / "last_call.py", port, rank, 3, what], plugin_environment) for rank in range(3)], tmp_path, 180)
    for number, rank in enumerate(ranks):
        assert (rank.returncode, rank.out) == (0, "through\n"), f"rank {number}: {rank.err[-4000:]}"


@pytest.mark.parametrize("algorithm", ["engine", "ring"])
def test_operations_end_and_own_their_outputs(algorithm, python_ranks):
    """Also with plans; the program includes a rank outside torch.distributed, and futures of two groups in opposite
    order."""
    ranks = python_ranks(PROGRAMS / "dropped.py", 2, env={"RONDO_ALGORITHM": algorithm}, finalize=True)
    for number, rank in enumerate(ranks):
        assert re.fullmatch(rf"rank {number}: \d+ checks\n", rank.out), rank.out + rank.err
        assert rank.returncode == 0, rank.err


def test_another_version_of_torch_is_refused(python):
    done = python("-c", "import torch; torch.__version__ = '2.11.0'; import rondo_torch")
    assert done.returncode == 1
    message = done.err.strip().splitlines()[-1]
    assert message.startswith("ImportError: rondo_torch was built with torch ")
    assert "the torch of this Python is 2.11.0" in message and "pip install --no-build-isolation" in message


def test_registered_memory_can_be_switched_off(python):
    program = ("import torch, rondo_torch, torch.distributed as dist\n"
               "dist.init_process_group('rondo', store=dist.HashStore(), rank=0, world_size=1)\n"
               "dist.all_reduce(tensor := torch.ones(100_000))\n"
               "print(rondo_torch.registers_allocations(), rondo_torch.is_registered(tensor), tensor.sum().item())\n")
    assert python("-c", program, env={"RONDO_REGISTERED_MEMORY": "0"}).out.split() == ["False", "False", "100000.0"]


def test_groups_whose_ranks_change_are_refused(python):
    """torch 2.14 and newer say so in the options of a backend."""
    program = ("import types, rondo_torch.backend as backend\n"
               "backend.create_backend(types.SimpleNamespace(enable_reconfigure=True), None)\n")
    done = python("-c", program)
    assert done.returncode == 1 and "leave enable_reconfigure out" in done.err.strip().splitlines()[-1]


def test_pip_installs_it(repository, rondo_bin, plugin_environment, tmp_path):
    """Installs from the finished build, without compiling again."""
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-build-isolation", "--no-deps",
           "--no-index", "--target", target, repository / "python"]
    done = subprocess.run(pip, env=plugin_environment | {"RONDO_BUILD_DIR": str(rondo_bin.resolve().parent)}, capture_output=True,
                          text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.name.split(".")[0] for path in (target / "rondo_torch").iterdir()}
    assert {"__init__", "backend", "built_with", "native"} <= names
    program = "import rondo_torch, torch.distributed as d; print(rondo_torch.__file__, d.is_backend_available('rondo'))"
    found = subprocess.run([sys.executable, "-c", program], env=plugin_environment | {"PYTHONPATH": str(target)},
                           capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert found.stdout.split() == [str(target / "rondo_torch" / "__init__.py"), "True"], found.stderr
    leftovers = [path for path in (repository / "python").iterdir()
                 if path.name in ("build", "dist") or path.suffix == ".egg-info"]
    assert leftovers == []


@pytest.mark.long  # test_strategies_of_pytorch_reach_the_losses_of_gloo trains with fully_shard, too
def test_the_benchmark_gives_rows_and_ratios(repository, python):
    done = python(repository / "bench" / "peers" / "fsdp2.py", "--model", "gpt-tiny", "--strategies", "fsdp2", "--turns", 1,
                  "--steps", 2, "--json", "-")
    assert done.returncode == 0, done.err
    rows = json.loads(done.out)
    gloo, rondo, ratio = rows
    assert [row["setting"] for row in (gloo, rondo)] == ["over gloo", "over rondo"]
    assert rondo["final_loss"] == pytest.approx(gloo["final_loss"], rel=1e-5)
    assert {"system", "strategy", "model", "ranks", "hosts", "rate", "dtype", "step_ms_p50", "step_ms_min", "tokens_per_s",
            "peak_rss_bytes", "final_loss"} <= set(rondo)
    assert ratio["value"] > 0 and {"ratio", "of", "to", "goal"} <= set(ratio)
