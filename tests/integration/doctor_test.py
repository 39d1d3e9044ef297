"""rondo doctor: its findings, its remedies, and that it runs without libtorch."""
import json
import os
import re
import subprocess

import pytest


def examine(rondo, *words, **options):
    result = rondo("doctor", "--json", "-", *words, **options)
    report = json.loads(result.stdout)
    return result, report, {(f["section"], f["name"]): f for f in report["findings"]}


def test_finds_libtorch_and_the_machine(rondo):
    result, report, findings = examine(rondo)
    assert result.returncode == 0 and report["healthy"], result.stdout
    torch = findings["libtorch", "libtorch"]
    assert torch["state"] in ("ok", "warning")
    assert re.fullmatch(r"\d+\.\d+\.\d+", torch["data"]["version"])
    assert isinstance(torch["data"]["cuda"], bool) and torch["data"]["loads"]
    assert findings["backends", "native"]["data"]["available"]
    assert {name for section, name in findings if section == "backends"} == {"native", "gloo", "mpi", "nccl"}
    assert 1 <= findings["machine", "cores"]["data"]["threads"] == len(os.sched_getaffinity(0))
    assert findings["machine", "memory"]["data"]["total_bytes"] > 0
    assert findings["shared memory", "memfd"]["data"]["memfd"] is True
    assert findings["network", "lo"]["data"]["loopback"]
    assert findings["schedulers", "this process"]["data"]["launcher"] == "none"


def test_every_missing_part_names_a_remedy(rondo):
    _, report, _ = examine(rondo)
    assert [f["name"] for f in report["findings"] if f["state"] != "ok" and not f["get"]] == []


def test_the_table_says_the_same(rondo):
    result = rondo("doctor")
    assert result.returncode == 0
    for word in ("libtorch", "backends", "native", "gloo", "cores", "memfd", "lo", "Slurm"):
        assert word in result.stdout
    assert "\x1b[" not in result.stdout


def test_a_libtorch_that_is_not_there(rondo):
    for words, env in ((["--libtorch", "/nowhere"], {}), ([], {"LIBTORCH": "/nowhere"})):
        result, report, findings = examine(rondo, *words, env=env)
        assert result.returncode == 1 and not report["healthy"]
        assert findings["libtorch", "libtorch"]["state"] == "broken"
        assert "/nowhere" in findings["libtorch", "libtorch"]["detail"]
        assert "make setup" in findings["libtorch", "libtorch"]["get"]
        assert not findings["backends", "native"]["data"]["available"]


def test_a_libtorch_that_cannot_be_loaded(rondo, tmp_path):
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch_cpu.so").write_text("not a library")
    result, _, findings = examine(rondo, "--libtorch", tmp_path)
    assert result.returncode == 1
    assert "cannot be loaded" in findings["libtorch", "libtorch"]["detail"]


def test_sees_a_schedulers_task(rondo):
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0"}
    _, _, findings = examine(rondo, env=slurm)
    data = findings["schedulers", "this process"]["data"]
    assert (data["launcher"], data["rank"], data["world_size"], data["sources"]) == ("slurm", 1, 2, ["slurm"])
    _, _, findings = examine(rondo, env=slurm | {"RANK": "0"})
    process = findings["schedulers", "this process"]
    assert process["state"] == "warning" and "RANK=0" in process["detail"] and "SLURM_PROCID=1" in process["detail"]


def test_json_goes_to_a_file_beside_the_table(rondo, tmp_path):
    result = rondo("doctor", "--json", "out.json")
    assert "libtorch" in result.stdout
    assert json.loads((tmp_path / "out.json").read_text())["healthy"] is True


@pytest.mark.parametrize("words, part", [(["--bogus"], "--bogus"), (["--json"], "--json"), (["word"], "word")])
def test_wrong_usage(rondo, words, part):
    result = rondo("doctor", *words)
    assert result.returncode == 2 and part in result.stderr


def test_shows_libtorch_and_missing_scheduler(rondo, tmp_path):
    (tmp_path / "bin").mkdir()
    result, report, findings = examine(rondo, env={"PATH": str(tmp_path / "bin")})
    assert findings["schedulers", "Slurm"]["state"] == "missing" and findings["schedulers", "Slurm"]["get"]
    assert report["healthy"] and result.returncode == 0
    sections = [line for line in rondo("doctor").stdout.splitlines() if line and not line.startswith(" ")]
    assert "libtorch" in sections and len(sections) == len(set(sections)), sections
    programs = findings["rondo", "programs"]
    assert programs["state"] == "ok" and programs["data"]["count"] >= 5 and not programs["data"]["missing_libraries"]


def test_a_file_that_cannot_be_written(rondo):
    result = rondo("doctor", "--json", "/nowhere/x")
    assert result.returncode == 1 and "/nowhere/x" in result.stderr


MANAGEMENT_LIBRARY = """
#include <string.h>
typedef struct { unsigned long long total, free, used; } Memory;
static int cards[2];
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { strncpy(text, "580.1", size); return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** card) { *card = &cards[index]; return 0; }
int nvmlDeviceGetName(void* card, char* text, unsigned size) {
  strncpy(text, card == &cards[0] ? "Card A" : "Card B", size);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* card, Memory* memory) {
  memory->total = 80ull << 30;
  memory->free = card == &cards[0] ? 3ull << 30 : 5ull << 30;
  return 0;
}
"""
NCCL_LIBRARY = "int ncclGetVersion(int* version) { *version = 22809; return 0; }"


def library(path, source):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)


def test_lists_cards_and_the_version_of_nccl(rondo, tmp_path):
    """The driver's and NCCL's libraries are small fakes, so that no GPU is needed."""
    library(tmp_path / "driver" / "libnvidia-ml.so.1", MANAGEMENT_LIBRARY)
    torch = tmp_path / "site-packages" / "torch"
    library(tmp_path / "site-packages" / "nvidia" / "nccl" / "lib" / "libnccl.so.2", NCCL_LIBRARY)
    library(torch / "lib" / "libtorch_cpu.so", "int torch_of_a_test;")
    library(torch / "lib" / "libtorch_cuda.so", "int cuda_of_a_test;")
    path = ":".join(filter(None, [str(tmp_path / "driver"), os.environ.get("LD_LIBRARY_PATH")]))
    _, _, findings = examine(rondo, "--libtorch", torch, env={"LD_LIBRARY_PATH": path})
    cards = findings["machine", "GPUs"]
    assert cards["data"]["cards"] == [{"name": "Card A", "total_bytes": 80 << 30, "free_bytes": 3 << 30},
                                      {"name": "Card B", "total_bytes": 80 << 30, "free_bytes": 5 << 30}]
    assert cards["data"]["driver"] == "580.1"
    for fact in ("Card A", "Card B", "80.0 GiB", "3.0 GiB free", "580.1"):
        assert fact in cards["detail"], cards
    nccl = findings["backends", "nccl"]
    assert nccl["data"]["version"] == "2.28.9" and "2.28.9" in nccl["detail"]
    assert isinstance(nccl["data"]["compiled_in"], bool)
    if not nccl["data"]["compiled_in"]:
        assert not nccl["data"]["available"] and "left out of this build" in nccl["detail"] and "RONDO_NCCL" in nccl["get"]
