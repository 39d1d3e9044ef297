"""The result of `cmake --install` works in its place: programs, libraries, documents."""
import json
import re
import shutil
import subprocess

import pytest
from building import cached, must, without_launcher


def programs(folder):
    return sorted(path for path in (folder / "bin").iterdir() if path.is_file())


def plain_environment(home):
    """Returns an environment as after login, without variables for the locations of libraries."""
    dropped = ("LD_", "LIBTORCH", "RONDO_")
    return {k: v for k, v in without_launcher().items() if not k.startswith(dropped)} | {"HOME": str(home)}


def starts(program, folder, environment):
    """Checks that its help works, or for the MPI peer, which has none, that its libraries are found."""
    result = subprocess.run([program, "--help"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    if program.name == "rondo-bench-openmpi":
        return "error while loading shared libraries" not in result.stderr
    return result.returncode == 0 and "Usage" in result.stdout


def test_every_program_starts_from_any_folder(installed, tmp_path):
    found = programs(installed)
    assert {"rondo", "rondo-train", "rondo-train-worker", "rondo-plan", "rondo-simulate", "rondo-report", "rondo-bench",
            "rondo-profile", "rondo-checkpoint", "rondo-matmul", "rondo-doctor", "rondo-evaluate", "rondo-predict", "rondo-export", "rondo-tokenize"} <= {path.name for path in found}
    assert [path.name for path in found if not starts(path, "/", plain_environment(tmp_path))] == []


def test_installed_doctor_finds_moved_libraries(installed, tmp_path):
    environment = plain_environment(tmp_path) | {"RONDO_MATMUL": "libtorch"}

    def programs_finding(prefix):
        result = subprocess.run([prefix / "bin" / "rondo", "doctor", "--json", "-"], env=environment, capture_output=True,
                                text=True, timeout=120)
        finding, = [f for f in json.loads(result.stdout)["findings"] if f["name"] == "programs"]
        return result.returncode, finding

    code, finding = programs_finding(installed)
    assert code == 0 and finding["state"] == "ok" and finding["data"]["count"] == len(programs(installed)) - 1, finding
    solver = installed / "lib" / "rondo" / "libhighs.so"
    if not solver.exists():
        return  # the solver is a system library
    incomplete = tmp_path / "incomplete"
    shutil.copytree(installed / "bin", incomplete / "bin")
    code, finding = programs_finding(incomplete)
    assert code == 1 and finding["state"] == "broken", finding
    assert finding["data"]["missing_libraries"]["rondo-plan"] == ["libhighs.so"]


def test_a_moved_prefix_still_plans(installed, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(installed, moved, ignore=shutil.ignore_patterns("include", "*.a"))
    plan = must(moved / "bin" / "rondo", "plan", "--synthetic", "gpt:layers=2,dim=64", "--memory-limit", "1GiB", "--quiet",
                "--solver", "highs", cwd="/", env=plain_environment(tmp_path))
    assert "solver" in plan


@pytest.fixture
def without_libtorch(rondo_bin, tmp_path):
    """run(*words) without libtorch and .venv in their places, and with libtorch in tmp_path/moved."""
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        reason = f"this kernel or user may not make mount namespaces: {probe.stderr.strip()}"
        print(reason)
        pytest.skip(reason)
    built_with = cached(rondo_bin, "FIND_PACKAGE_MESSAGE_DETAILS_Libtorch").split("]")[0].strip("[")
    moved = tmp_path / "moved"
    moved.mkdir()
    script = 'mount --bind "$1" "$2" && mount -t tmpfs none "$1" && shift 2 && exec "$@"'

    def run(*words, **environment):
        return subprocess.run(["unshare", "-m", "bash", "-c", script, "sh", built_with, moved, *map(str, words)], cwd="/",
                              env=plain_environment(tmp_path) | environment, capture_output=True, text=True, timeout=120)

    run.built_with, run.moved = built_with, moved
    return run


@pytest.mark.parametrize("command", [["checkpoint", "inspect", "/etc"], ["bench", "--help"], ["profile", "--help"],
                                     ["train", "--data", "/etc/hostname"]])
def test_a_libtorch_that_was_moved(installed, without_libtorch, command):
    lost = without_libtorch(installed / "bin" / "rondo", *command)
    assert lost.returncode == 1 and "libtorch was not found" in lost.stderr, lost.stderr
    assert f"{without_libtorch.built_with}/lib" in lost.stderr and "LD_LIBRARY_PATH" in lost.stderr
    assert "LIBTORCH=" in lost.stderr
    found = without_libtorch(installed / "bin" / "rondo", *command[:1], "--help", LIBTORCH=str(without_libtorch.moved))
    assert found.returncode == 0 and "Usage" in found.stdout, found.stderr


def test_trains_with_moved_libtorch(installed, without_libtorch, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be " * 200)
    trained = without_libtorch(installed / "bin" / "rondo", "train", "--data", text, "--steps", 1, "--layers", 1, "--matmul",
                               "libtorch", "--run-dir", tmp_path / "run", LIBTORCH=str(without_libtorch.moved))
    assert trained.returncode == 0, trained.stderr
    for words in (["--help"], ["run", "--help"], ["plan", "--help"], ["simulate", "--help"], ["report", tmp_path / "run"]):
        result = without_libtorch(installed / "bin" / "rondo", *words)
        assert result.returncode == 0, result.stderr
    assert without_libtorch(installed / "bin" / "rondo", "doctor").returncode == 1


def test_a_libtorch_variable_that_names_none(installed, tmp_path):
    result = subprocess.run([installed / "bin" / "rondo", "bench", "--help"], capture_output=True, text=True,
                            env=plain_environment(tmp_path) | {"LIBTORCH": "/nowhere"})
    assert result.returncode == 2 and "LIBTORCH=/nowhere" in result.stderr and "/nowhere/torch" in result.stderr


LINK = re.compile(r"\]\(([^)#\s]+)")


def dead_links(root, documents):
    dead = []
    for document in documents:
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
        for target in LINK.findall(text):
            if "://" not in target and not (document.parent / target).exists():
                dead.append(f"{document.relative_to(root)}: {target}")
    return dead


def test_no_link_is_dead(repository, installed):
    share = installed / "share" / "rondo"
    documents = sorted(share.rglob("*.md"))
    assert {share / "README.md", share / "docs" / "cli.md", share / "docs" / "errors.md"} <= set(documents)
    assert dead_links(share, documents) == []
    tracked = must("git", "-C", repository, "ls-files", "*.md").split("\n") if (repository / ".git").exists() else []
    assert dead_links(repository, [repository / name for name in tracked if name]) == []


def test_reports_mpi_without_headers_once(repository, rondo_bin, tmp_path):
    """As with Debian's openmpi-bin: a compiler that names a missing folder of headers."""
    tools = tmp_path / "tools"
    tools.mkdir()
    compiler = tools / "mpicc"
    gone = tmp_path / "gone"
    compiler.write_text("#!/bin/bash\n"
                        f"gone={gone} libraries=/usr/lib/x86_64-linux-gnu/openmpi/lib\n"
                        "case \"$*\" in\n"
                        "  *showme:incdirs*) echo $gone;; *showme:compile*) echo -I$gone;;\n"
                        "  *showme:libdirs*) echo $libraries;; *showme:libs*) echo mpi;;\n"
                        "  *showme:link*) echo -L$libraries -lmpi;; *showme*) echo gcc -I$gone -lmpi;;\n"
                        "  *) exec gcc -I$gone \"$@\";;\nesac\n")
    compiler.chmod(0o755)
    libtorch = cached(rondo_bin, "LIBTORCH")
    result = subprocess.run(["cmake", "-S", repository, "-B", tmp_path / "build", "-G", "Ninja", f"-DLIBTORCH={libtorch}",
                             "-DRONDO_BUILD_TESTS=OFF", "-DRONDO_BUILD_PYTHON=OFF", f"-DMPI_C_COMPILER={compiler}"],
                            capture_output=True, text=True, timeout=300)
    said = result.stdout + result.stderr
    assert result.returncode == 0, said
    assert said.count("No MPI engine") == 1 and "mpi.h" in said and "libopenmpi-dev" in said, said
    targets = must("ninja", "-C", tmp_path / "build", "-t", "targets", "all")
    assert "rondo_mpi.so" not in targets and "rondo-bench-openmpi" not in targets


@pytest.mark.long  # the tutorial own-model.md builds a module, too (pages_test.py)
def test_package_builds_a_trainable_model_module(installed, rondo_bin, tmp_path, repository):
    """`rondo_model` of find_package(rondo): a single CMake command, then `rondo train --model`."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "mine.cpp").write_text(
        '#include <torch/torch.h>\n#include <rondo/extend/model.h>\n'
        'extern "C" void make_model(const rondo::ModelRequest& request, rondo::Model& model) {\n'
        '  const int classes = request.config.at("classes").get<int>();\n'
        '  torch::nn::Sequential net(torch::nn::Linear(2, 8), torch::nn::Tanh(), torch::nn::Linear(8, classes));\n'
        '  model = rondo::as_model(net.ptr());\n}\n')
    (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(mine LANGUAGES CXX)\n"
                                            "find_package(rondo REQUIRED)\nrondo_model(mine mine.cpp)\n")
    libtorch = cached(rondo_bin, "LIBTORCH")
    must("cmake", "-S", project, "-B", project / "build", f"-Drondo_ROOT={installed}", "-DCMAKE_BUILD_TYPE=Release",
         *([f"-DLIBTORCH={libtorch}"] if libtorch else []), env=without_launcher())
    must("cmake", "--build", project / "build", env=without_launcher())
    (tmp_path / "points.csv").write_text("x,y,kind\n" + "".join(f"{i % 7},{i % 5},{'ab'[i % 2]}\n" for i in range(40)))
    must(installed / "bin" / "rondo", "train", "--data", "points.csv", "--model", "project/build/libmine.so:make_model",
         "--unit-rules", "type:Linear", "--nproc-per-node", 2, "--strategy", "zero3", "--batch-size", 8, "--steps", 3, "--run-dir",
         "run", cwd=tmp_path, env=plain_environment(tmp_path) | ({"LIBTORCH": libtorch} if libtorch else {}))
    judged = must(installed / "bin" / "rondo", "evaluate", "run", "--json", "-", cwd=tmp_path,
                  env=plain_environment(tmp_path) | ({"LIBTORCH": libtorch} if libtorch else {}))
    assert "accuracy" in json.loads(judged)["figures"]
