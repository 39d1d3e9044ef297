"""Programs of the tutorials: each step compiles in a new project, trains on two processes, and shows what it printed."""
import re

import pytest
from building import cached, must, without_launcher

pytestmark = pytest.mark.tooling


def blocks(page, language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", page.read_text())


def patched(program, diff):
    """Returns the program after a diff whose parts are separated by lines of three dots."""
    for part in re.split(r"(?m)^\.\.\.\n", diff):
        lines = part.splitlines()
        before = [line[1:] for line in lines if line[:1] != "+"]
        after = [line[1:] for line in lines if line[:1] != "-"]
        assert program.count("\n".join(before)) == 1, part
        program = program.replace("\n".join(before), "\n".join(after))
    return program


def loop_programs(repository):
    page = repository / "docs" / "tutorials" / "own-loop.md"
    first, = blocks(page, "cpp")
    data_parallel, sharded = blocks(page, "diff")
    second = patched(first, data_parallel)
    return [first, second, patched(second, sharded)]


def test_steps_follow_each_other(repository):
    first, second, third = loop_programs(repository)
    assert "rondo" not in first and "DistributedDataParallel" in second
    assert "fully_shard" in third and "DistributedDataParallel" not in third and third.count("optimizer.step()") == 1


def test_lines_of_the_first_tutorial_are_those_of_a_new_project(repository):
    block, = blocks(repository / "docs" / "tutorials" / "own-model.md", "cpp")
    shown = "\n".join(line.strip() for line in block.splitlines())
    template = (repository / "apps" / "new" / "template" / "train.cpp").read_text()
    assert shown in "\n".join(line.strip() for line in template.splitlines())


@pytest.fixture
def project(installed, tmp_path, run, clean_environment, rondo_bin):
    """project(program) builds a new project with this train.cpp, and returns its folder."""
    libtorch = cached(rondo_bin, "LIBTORCH")
    environment = clean_environment | ({"LIBTORCH": libtorch} if libtorch else {})
    assert run(installed / "bin" / "rondo", "new", "tried", env=environment, cwd=tmp_path).returncode == 0

    def build(program):
        (tmp_path / "tried" / "train.cpp").write_text(program)
        must("cmake", "-S", ".", "-B", "build", cwd=tmp_path / "tried", env=without_launcher(), timeout=120)
        must("cmake", "--build", "build", "--target", "train", cwd=tmp_path / "tried", env=without_launcher(), timeout=600)
        return tmp_path / "tried"

    return build


def losses(output):
    return [float(loss) for loss in re.findall(r"step \d+ loss (\S+)", output)]


@pytest.mark.alone
def test_a_loop_of_ones_own_becomes_sharded(repository, project, installed):
    found = []
    for program in loop_programs(repository):
        folder = project(program)
        assert losses(must("build/train", cwd=folder, env=without_launcher()))[-1] < 1
        found.append(losses(must(installed / "bin" / "rondo", "run", "-n", "2", "build/train", cwd=folder, env=without_launcher())))
        assert (folder / "model.pt").exists()
    assert found[2] == pytest.approx(found[1], rel=1e-3)


@pytest.mark.alone
def test_a_training_survives_a_killed_rank(repository, project, installed):
    program, = blocks(repository / "docs" / "tutorials" / "restart.md", "cpp")
    # The newest rank kills itself once, in the place of a user.
    killed = program.replace("    ++step;\n", "    ++step;\n    if (step == 1700 && context.rank() == 1 && !std::filesystem::exists(\"killed\")) {\n"
                             "      std::filesystem::create_directory(\"killed\");\n      std::raise(SIGKILL);\n    }\n")
    folder = project("#include <csignal>\n" + killed)
    output = must(installed / "bin" / "rondo", "run", "-n", "2", "--max-restarts", "1", "build/train", cwd=folder, env=without_launcher())
    assert "resumed after step 1500" in output
    assert len(losses(output)) == 10 and (folder / "checkpoints" / "step-00005000").is_dir()
