"""Everything that `make` and `make nightly` run exists: files, tests by name, and every benchmark."""
import json
import re
import subprocess

import pytest

pytestmark = pytest.mark.tooling

RECIPES = ("Makefile", "scripts/nightly.sh", ".ci/run", "scripts/sanitize.sh", "scripts/coverage.sh", "scripts/cross.sh")
# Scripts that take minutes at any size, or measure nothing themselves.
NOT_NIGHTLY = {"benchmarks.py", "charts.py", "harness.py", "plot_collectives.py"}
# Scripts of bench/peers: ranks of a benchmark with --peers, or shared code.
STARTED_BY = {"checkpoint.py": "bench checkpoint", "first_step.py": "bench-dev startup", "loader.py": "bench-dev loader",
              "pipeline.py": "bench-dev pipeline", "step.py": "bench step"}
OF_PEERS = {"gpt.py", "leaving.py", "peer_ratio.py"}
# Scripts that need TensorFlow, in an environment created by hand, or a GPU (make gpu-check).
BY_HAND = {"tensorflow_strategies.py", "gpu_step.py"}


@pytest.fixture
def recipes(repository):
    return {name: (repository / name).read_text() for name in RECIPES}


def test_files_and_targets_exist(repository, recipes):
    for name, text in recipes.items():
        for path in re.findall(r"\b(?:scripts|bench|tests|python)/[\w/]+\.(?:py|sh|supp)\b", text):
            assert (repository / path).is_file(), f"{name}: {path}"
    targets = set(re.findall(r"^([a-z-]+):", recipes["Makefile"], re.M))
    for name in ("scripts/nightly.sh", ".ci/run"):
        assert set(re.findall(r"(?:^|&& )make ([a-z-]+)", recipes[name], re.M)) <= targets, name


def test_filters_match_tests(recipes, rondo_bin):
    filters = re.findall(r"build/\$\(PRESET\)/bin/(\w+) --gtest_filter='([^']+)'", recipes["Makefile"])
    assert len(filters) >= 5
    for program, names in filters:
        for one in names.split(":"):
            listed = subprocess.run([rondo_bin / program, "--gtest_list_tests", f"--gtest_filter={one}"],
                                    capture_output=True, text=True, check=True).stdout
            assert re.search(r"^  \w", listed, re.M), f"{program} has no test {one}"


def test_every_benchmark_is_run_at_night(repository, recipes):
    nightly = recipes["scripts/nightly.sh"]
    kinds = set(re.findall(r"^Command add_(\w+)\(", (repository / "apps/bench/commands.h").read_text(), re.M))
    for kind in {kind for kind in kinds if not kind.endswith("_worker")}:
        assert re.search(rf"bench(-dev)? {kind.replace('_', '-')} ", nightly), kind
    for script in sorted((repository / "bench").glob("*.py")):
        assert script.name in NOT_NIGHTLY or f"bench/{script.name}" in nightly, script.name
    for script in sorted((repository / "bench/peers").glob("*.py")):
        starter = STARTED_BY.get(script.name, f"bench/peers/{script.name}")
        runs = [line for line in nightly.splitlines() if starter in line and (script.name not in STARTED_BY or "--peers" in line)]
        assert runs or script.name in OF_PEERS | BY_HAND, script.name


def test_port_has_the_version(repository):
    """The recipes of Conan and Spack read the header; a manifest of vcpkg is data."""
    version = re.search(r'#define RONDO_VERSION "(.+)"', (repository / "rondo/base/version.h").read_text())[1]
    assert json.loads((repository / "packaging/vcpkg/vcpkg.json").read_text())["version"] == version


def test_left_out_tests_exist(repository, rondo_bin):
    """Tests that an emulator cannot run are left out by name, without an error for a name that no test has."""
    for line in (repository / "scripts/emulated_tests.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            layer, name = line.split()[0].split(".", 1)
            listed = subprocess.run([rondo_bin / f"{layer}_test", "--gtest_list_tests", f"--gtest_filter={name}"],
                                    capture_output=True, text=True, check=True).stdout
            assert re.search(r"^  \w", listed, re.M), f"{layer}_test has no test {name}"
