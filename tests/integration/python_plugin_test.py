"""rondo_torch, the plug-in for torch.distributed, as built in build/<preset>/python: results of ranks under torchrun,
mp.spawn, `rondo run` and by hand, compared with Gloo; error messages; and installation by pip."""
import json
import os
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
def python(plugin_environment, tmp_path):
    def run(*words, timeout=600, env=None):
        return subprocess.run([sys.executable, *map(str, words)], env=plugin_environment | (env or {}), text=True,
                              capture_output=True, timeout=timeout, cwd=tmp_path)

    return run


def test_every_collective_gives_what_gloo_gives(python):
    done = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 3, PROGRAMS / "collectives.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split("\n"))[1:] == [f"rank {rank}: 512 comparisons" for rank in range(3)]


def test_strategies_of_pytorch_reach_the_losses_of_gloo(python, tmp_path):
    done = python(PROGRAMS / "training.py", f"file://{tmp_path}/store", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)
    assert set(results) == {"ddp", "zero", "fsdp2", "fsdp2_bfloat16", "fsdp2_own_buffers"}
    for strategy, (gloo, rondo) in results.items():
        assert rondo == pytest.approx(gloo, rel=1e-5), strategy
        assert gloo[-1] < gloo[0], f"{strategy} learns nothing: {gloo}"


def test_groups_meshes_and_forked_children(rondo, plugin_environment):
    done = rondo("run", "--nproc-per-node", 4, "--", sys.executable, PROGRAMS / "groups.py", env=plugin_environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("groups: ok") == 4


@pytest.mark.alone
def test_faults_are_named_on_every_rank(python_ranks):
    ranks = python_ranks(PROGRAMS / "faults.py", 3, timeout=120)
    reports = []
    for _, output, errors in ranks:
        lines = [line for line in output.splitlines() if line.startswith("{")]
        assert lines, errors
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
        assert f"rank 2 (pid {ranks[2][0].pid})" in lost["message"], lost
    assert "killed" not in reports[2]


@pytest.mark.parametrize("algorithm", ["engine", "ring"])
def test_what_clients_of_torch_distributed_ask_for(algorithm, python_ranks):
    for rank, (process, output, errors) in enumerate(python_ranks(PROGRAMS / "clients.py", 2, env={"RONDO_ALGORITHM": algorithm})):
        assert process.returncode == 0, f"rank {rank}: {output}{errors[-4000:]}"
        assert [line.split(":")[0] for line in output.splitlines()] == ["averages", "unequal_lists", "nested_futures", "power_sgd",
                                                                        "forked_child"]


@pytest.mark.parametrize("what", ["monitored_barrier", "init_process_group"])
def test_store_rank_may_end_after_last_call(what, plugin_environment, tmp_path):
    with reserved_ports(1) as (port,):
        ranks = [subprocess.Popen([sys.executable, PROGRAMS / "last_call.py", str(port), str(rank), "3", what], text=True, cwd=tmp_path,
                                  env=plugin_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(3)]
        try:
            for rank, process in enumerate(ranks):
                output, errors = process.communicate(timeout=180)
                assert (process.returncode, output) == (0, "through\n"), f"rank {rank}: {errors[-4000:]}"
        finally:
            for process in ranks:
                process.kill()


@pytest.mark.parametrize("algorithm", ["engine", "ring"])
def test_operations_end_and_own_their_outputs(algorithm, python_ranks):
    """Also with plans; the program includes a rank outside torch.distributed, and futures of two groups in opposite
    order."""
    ranks = python_ranks(PROGRAMS / "dropped.py", 2, env={"RONDO_ALGORITHM": algorithm})
    for rank, (process, output, errors) in enumerate(ranks):
        assert re.fullmatch(rf"rank {rank}: \d+ checks\n", output), output + errors
        assert process.returncode == 0, errors


def test_another_version_of_torch_is_refused(python):
    done = python("-c", "import torch; torch.__version__ = '2.11.0'; import rondo_torch")
    assert done.returncode == 1
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith("ImportError: rondo_torch was built with torch ")
    assert "the torch of this Python is 2.11.0" in message and "pip install --no-build-isolation" in message


def test_registered_memory_can_be_switched_off(python):
    program = ("import torch, rondo_torch, torch.distributed as dist\n"
               "dist.init_process_group('rondo', store=dist.HashStore(), rank=0, world_size=1)\n"
               "dist.all_reduce(tensor := torch.ones(100_000))\n"
               "print(rondo_torch.registers_allocations(), rondo_torch.is_registered(tensor), tensor.sum().item())\n")
    assert python("-c", program, env={"RONDO_REGISTERED_MEMORY": "0"}).stdout.split() == ["False", "False", "100000.0"]


def test_groups_whose_ranks_change_are_refused(python):
    """torch 2.14 and newer say so in the options of a backend."""
    program = ("import types, rondo_torch.backend as backend\n"
               "backend.create_backend(types.SimpleNamespace(enable_reconfigure=True), None)\n")
    done = python("-c", program)
    assert done.returncode == 1 and "leave enable_reconfigure out" in done.stderr.strip().splitlines()[-1]


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


def test_the_benchmark_gives_rows_and_ratios(repository, python):
    done = python(repository / "bench" / "peers" / "fsdp2.py", "--model", "gpt-tiny", "--strategies", "fsdp2", "--turns", 1,
                  "--steps", 2, "--json", "-")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    gloo, rondo, ratio = rows
    assert [row["setting"] for row in (gloo, rondo)] == ["over gloo", "over rondo"]
    assert rondo["final_loss"] == pytest.approx(gloo["final_loss"], rel=1e-5)
    assert {"system", "strategy", "model", "ranks", "hosts", "rate", "dtype", "step_ms_p50", "step_ms_min", "tokens_per_s",
            "peak_rss_bytes", "final_loss"} <= set(rondo)
    assert ratio["value"] > 0 and {"ratio", "of", "to", "goal"} <= set(ratio)
