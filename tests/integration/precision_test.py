"""Mixed precision and the choice of matrix kernels as a user sees them: flags, files, and error messages."""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "precision"))

import make_torch_amp_reference as reference_maker  # noqa: E402

SMALL = ["--model", "gpt-tiny", "--layers", 1, "--heads", 2, "--width", 16, "--seq-len", 16, "--batch-size", 8,
         "--log-every", 1, "--trace-steps", 0, "--progress", "off"]


def test_the_stored_reference_is_pytorchs_amp():
    stored = (ROOT / "tests" / "precision" / "torch_amp_reference.json").read_text()
    assert stored == reference_maker.reference()


@pytest.fixture
def train(rondo, tmp_path, repository):
    def run_train(*flags, run_dir="run", **options):
        return rondo("train", "--data", repository / "README.md", "--run-dir", tmp_path / run_dir, *SMALL, *flags, **options)

    return run_train


def rows(run_directory):
    lines = (run_directory / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["rank"] == 0 and "loss" in row]


def state_of(run_directory):
    newest = max((run_directory / "checkpoints").iterdir())
    return json.loads((newest / "state.json").read_text())["values"]["precision"]


def test_mixed_precision_trains_and_resumes_with_its_scale(train, tmp_path):
    flags = ["--nproc-per-node", 2, "--precision", "O2", "--amp-dtype", "float16", "--matmul", "libtorch"]
    result = train(*flags, "--steps", 4)
    assert result.returncode == 0, result.stderr
    history = rows(tmp_path / "run")
    assert [row["step"] for row in history] == [1, 2, 3, 4] and all(row["loss_scale"] > 0 for row in history)
    scaler = state_of(tmp_path / "run")["scaler"]
    assert set(scaler) == {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}

    result = train("--resume", "--steps", 6, "--nproc-per-node", 2)  # the level comes from the run's own configuration
    assert result.returncode == 0, result.stderr
    history = rows(tmp_path / "run")
    assert [row["step"] for row in history] == [1, 2, 3, 4, 5, 6]
    assert history[4]["loss_scale"] == scaler["scale"]
    assert state_of(tmp_path / "run")["scaler"]["_growth_tracker"] >= 2
    # The checkpoint has the float32 master weights: it can generate text.
    result = train("--sample", "The ", "--length", 5)
    assert result.returncode == 0 and result.stdout.startswith("The "), result.stderr


@pytest.mark.parametrize("strategy", ["ddp", "zero3"])
def test_logs_and_skips_nan_gradient(train, tmp_path, strategy):
    """With a huge learning rate the weights are infinite after one step, and all later steps are skipped."""
    result = train("--precision", "O1", "--loss-scale", "dynamic", "--optimizer", "sgd", "--lr", 1e38, "--steps", 4,
                   "--nproc-per-node", 2, "--strategy", strategy)
    assert result.returncode == 0, result.stderr
    lines = re.findall(r"step (\d): a gradient is infinite or NaN; the step is skipped, loss scale (\S+) -> (\S+)", result.stderr)
    assert lines, result.stderr
    for step, before, after in lines:
        assert float(after) == pytest.approx(float(before) / 2)
    assert len({step for step, _, _ in lines}) == len(lines), "each once, by one rank"
    scales = {row["step"]: row["loss_scale"] for row in rows(tmp_path / "run")}
    for step, before, _ in lines:
        assert scales[int(step)] == pytest.approx(float(before))


@pytest.mark.parametrize("flags, parts", [
    (["--precision", "O4"], ["--precision", "O4"]),
    (["--precision", "O1", "--amp-dtype", "float8"], ["--amp-dtype", "float8"]),
    (["--precision", "O1", "--loss-scale", "static"], ["--loss-scale 'static'", "dynamic"]),
    (["--precision", "O1", "--loss-scale", "0"], ["--loss-scale '0'"]),
    (["--precision", "O1", "--set", "master-weights=true"], ["O1 takes no master_weights"]),
    (["--precision", "O3", "--amp-dtype", "float16", "--loss-scale", "dynamic"], ["needs master_weights", "O2"]),
    (["--matmul", "slow"], ["--matmul", "slow"]),
])
def test_wrong_usage_names_flag_and_value(train, flags, parts):
    result = train(*flags)
    assert result.returncode == 2, result.stderr
    assert all(part in result.stderr for part in parts), result.stderr


# Matrix products


@pytest.fixture
def measurements(tmp_path):
    return tmp_path / "cache" / "matmul.json"


def kernels(rondo_bin, clean_environment, **variables):
    """Returns MKL's state in a process with these variables: whether the kernels are the fast ones, and their
    errors."""
    result = subprocess.run([rondo_bin / "rondo-matmul", "--one"], env=clean_environment | variables, capture_output=True,
                            text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


NOTHING_IS_MEASURED = "this processor is one of Intel's, where nothing is measured"


def other_makers_processor():
    return "GenuineIntel" not in pathlib.Path("/proc/cpuinfo").read_text()


def test_products_stay_float32(rondo_bin, clean_environment):
    """The largest error of any product against float64 has the size of float32 sums, with either kernels."""
    for choice in ("libtorch", "fast"):
        errors = kernels(rondo_bin, clean_environment, RONDO_MATMUL=choice)["errors"]
        assert len(errors) == 12 and all(0 < error < 1e-6 for error in errors), (choice, errors)


def test_doctor_measures_kernels_once(rondo, rondo_bin, clean_environment, measurements, matmul_measurements):
    """A doctor measured for matmul_measurements; later ones read that file."""
    environment = {"RONDO_MATMUL_MEASUREMENTS": str(measurements)}
    assert matmul_measurements.exists() == other_makers_processor()
    measurements.parent.mkdir()
    if matmul_measurements.exists():
        shutil.copy(matmul_measurements, measurements)
    result = rondo("doctor", "--json", "-", env=environment)
    assert result.returncode == 0, result.stderr
    finding = next(f for f in json.loads(result.stdout)["findings"] if f["name"] == "matrix products")
    if not other_makers_processor():
        assert finding["data"]["kernels"] == "default" and not measurements.exists()
        return
    stored = measurements.read_text()
    (entry,) = json.loads(stored)["measurements"]
    assert finding["data"]["fast_gflops"] == pytest.approx(entry["fast"]["gflops"])
    assert stored == matmul_measurements.read_text()
    # Another process uses the measurement, but only one made with its own libtorch.
    uses_fast = finding["data"]["kernels"] == "fast"
    assert kernels(rondo_bin, clean_environment, **environment)["fast"] == uses_fast
    for speed, expected in ((10.0, True), (0.5, False)):
        entry["fast"]["gflops"] = speed * entry["default"]["gflops"]
        measurements.write_text(json.dumps({"format": "rondo-matmul-1", "measurements": [entry]}))
        assert kernels(rondo_bin, clean_environment, **environment)["fast"] == expected
    entry["library"] = "another"
    entry["fast"]["gflops"] = 10 * entry["default"]["gflops"]
    measurements.write_text(json.dumps({"format": "rondo-matmul-1", "measurements": [entry]}))
    assert kernels(rondo_bin, clean_environment, **environment)["fast"] is False


def test_trainings_measure_once_and_log_the_choice(rondo, repository, measurements):
    """Two start at the same time."""
    flags = ["train", "--data", repository / "README.md", *SMALL, "--steps", 1]
    variables = {"RONDO_MATMUL_MEASUREMENTS": str(measurements), "RONDO_LOG_LEVEL": "info"}
    both = [rondo.start(*flags, "--run-dir", name, env=variables) for name in "ab"]
    errors = [process.communicate(timeout=240)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert sum("measuring" in err for err in errors) == (1 if other_makers_processor() else 0), errors
    for err in errors:
        assert re.search(r"matrix products: (fast|default) kernels \(", err), err
    assert measurements.exists() == other_makers_processor()
    result = rondo(*flags, "--run-dir", "c", "--matmul", "libtorch", env=variables)
    assert "matrix products: default kernels" in result.stderr


def test_who_waits_for_another_programs_measuring_says_so(rondo, repository, measurements, matmul_measurements):
    if not other_makers_processor():
        pytest.skip(NOTHING_IS_MEASURED)
    measurements.parent.mkdir()
    folder = os.open(measurements.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # as a measuring program does
    try:
        process = rondo.start("train", "--data", repository / "README.md", "--run-dir", "run", *SMALL, "--steps", 1,
                              env={"RONDO_MATMUL_MEASUREMENTS": str(measurements)})
        first = process.stderr.readline()
        assert "waiting for another program that measures matrix products" in first and str(measurements.parent) in first, first
        shutil.copy(matmul_measurements, measurements)
    finally:
        os.close(folder)
    rest = process.communicate(timeout=120)[1]
    assert process.returncode == 0 and "measuring the kernels" not in rest, rest  # it used the other program's result


def measuring_for(path):
    """Returns the rondo-matmul processes that measure for this file; other tests may measure at the same time."""
    variable = f"RONDO_MATMUL_MEASUREMENTS={path}".encode()
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text() == "rondo-matmul\n" and variable in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            pass  # the process has ended
    return found


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_measures_on_when_the_launcher_was_stopped(rondo, repository, tmp_path, measurements, stop):
    if not other_makers_processor():
        pytest.skip(NOTHING_IS_MEASURED)
    process = rondo.start("train", "--data", repository / "README.md", "--run-dir", "run", *SMALL, "--steps", 1,
                          "--nproc-per-node", 2, env={"RONDO_MATMUL_MEASUREMENTS": str(measurements)})
    first = process.stderr.readline()
    assert "measuring the kernels" in first, first
    deadline = time.monotonic() + 60
    while len(measuring_for(measurements)) < 2:  # the waiting process, and its child
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(stop)
    rest = process.communicate(timeout=60)[1]  # its children hold the pipe, too
    assert process.returncode == (3 if stop == signal.SIGTERM else -signal.SIGKILL), rest
    while measuring_for(measurements):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not measurements.exists() and not (tmp_path / "run" / "metrics.jsonl").exists()


# Not even root can write below /proc.
NO_HOME = {"RONDO_MATMUL_MEASUREMENTS": "", "XDG_CACHE_HOME": "", "HOME": "/proc/nowhere"}


@pytest.mark.long  # test_trainings_measure_once_and_log_the_choice measures, too
def test_run_directory_keeps_measurement_with_readonly_home(rondo, repository, tmp_path):
    flags = ["train", "--data", repository / "README.md", "--run-dir", "run", *SMALL]
    process = rondo.start(*flags, "--steps", 1, env=NO_HOME)
    first = process.stderr.readline()
    rest = process.communicate(timeout=120)[1]
    assert process.returncode == 0, first + rest
    if not other_makers_processor():
        assert not (tmp_path / "run" / "matmul.json").exists()
        return
    assert "measuring" in first and "run/matmul.json" in first, first
    assert len(json.loads((tmp_path / "run" / "matmul.json").read_text())["measurements"]) == 1
    again = rondo(*flags, "--steps", 2, "--resume", env=NO_HOME | {"RONDO_LOG_LEVEL": "info"}, timeout=120)
    assert again.returncode == 0 and "measuring" not in again.stderr, again.stderr
    assert "were measured at" in again.stderr


def test_where_nothing_can_be_kept_nothing_is_measured(rondo, repository):
    result = rondo("train", "--data", repository / "README.md", *SMALL, "--steps", 1, env=NO_HOME, timeout=120)
    assert result.returncode == 0 and "measuring" not in result.stderr, result.stderr
    if other_makers_processor():
        assert "default kernels" in result.stderr and "/proc/nowhere/.cache" in result.stderr, result.stderr


def test_a_relative_cache_folder_is_none(rondo, repository, tmp_path):
    result = rondo("train", "--data", repository / "README.md", *SMALL, "--steps", 1, env=NO_HOME | {"XDG_CACHE_HOME": "cache"}, timeout=120)
    assert result.returncode == 0 and not (tmp_path / "cache").exists(), result.stderr


def test_any_program_that_links_rondo_has_the_choice(rondo_bin, clean_environment):
    """Including a program that rondo's commands do not start: rondo checks with the dynamic linker whether MKL calls
    rondo's function."""
    for choice in ("libtorch", "fast"):
        environment = clean_environment | {"RONDO_MATMUL": choice, "RONDO_LOG_LEVEL": "info"}
        result = subprocess.run([rondo_bin / "examples" / "minimal"], env=environment, capture_output=True, text=True,
                                timeout=120)
        assert result.returncode == 0, result.stderr
        name = "fast" if choice == "fast" else "default"
        expected = f"{name} kernels (RONDO_MATMUL={choice})" if other_makers_processor() else "already uses its fast kernels"
        assert expected in result.stderr, result.stderr


def test_a_file_of_something_else_costs_a_warning(train, measurements):
    measurements.parent.mkdir()
    measurements.write_text("not JSON")
    result = train("--steps", 1, env={"RONDO_MATMUL_MEASUREMENTS": str(measurements)})
    assert result.returncode == 0, result.stderr
    if other_makers_processor():
        assert str(measurements) in result.stderr and "rondo doctor" in result.stderr


def test_an_unknown_setting_is_refused(train):
    result = train("--steps", 1, env={"RONDO_MATMUL": "slow"})
    assert result.returncode == 2 and "RONDO_MATMUL=slow" in result.stderr, result.stderr
