"""Signals to `rondo train`: before the first step, at any stage of a process; HUP and USR1 like TERM; repeated TERM."""
import os
import pathlib
import pty
import signal
import subprocess
import sys

import pytest
from launching import alive, all_gone, below, wait_until
from marks import long
from train_test import SMALL, checkpoints, rows, text, train, worker_pids  # noqa: F401

NOTHING_TO_SAVE = "stopped by a signal before the first step"


def start(rondo, text, run, *flags, **options):  # noqa: F811
    return rondo.start("train", "--data", text, "--run-dir", run, *SMALL, "--validation-fraction", 0, *flags, **options)


def signals_of(pid, field):
    """Returns the signals of a mask in /proc/PID/status: SigBlk, SigCgt, SigIgn."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            mask = int(line.split()[1], 16)
            return {number for number in range(1, 32) if mask >> number - 1 & 1}
    return set()


def program(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def has_begun(pid):
    """Returns true after the start of the first program's main()."""
    return signal.SIGTERM in signals_of(pid, "SigBlk") | signals_of(pid, "SigCgt")


def becomes(name):
    """Like has_worker(), for the process itself."""
    return lambda pid: program(pid) in [name[:15], "rondo-train-worker"[:15]]


def has_worker(name):
    """Waits until a rank's process runs this program or, if the check comes too late, the next one."""
    programs = [name[:15], "rondo-train-worker"[:15]]

    def look(pid):
        for each in below(pid):
            try:
                if program(each) in programs:
                    return True
            except OSError:
                pass
        return False

    return look


def has_loaded(name):
    """Waits until the process itself or a descendant has opened a library: it is past the dynamic linker's start."""

    def look(pid):
        for each in [pid, *below(pid)]:
            try:
                if name in pathlib.Path(f"/proc/{each}/maps").read_text():
                    return True
            except OSError:
                pass
        return False

    return look


ONE = ()
TWO = ("--nproc-per-node", 2)
SERVED = ("--strategy", "parameter_server", "--ps", 1, "--workers", 1)


@pytest.mark.parametrize("flags, moment", [
    (ONE, has_begun), (ONE, becomes("rondo-train")), (ONE, becomes("rondo-train-worker")), (ONE, has_loaded("libtorch_cpu.so")),
    (TWO, has_begun), (TWO, has_worker("rondo-train")), (TWO, has_worker("rondo-train-worker")), (TWO, has_loaded("libtorch_cpu.so")),
    (SERVED, has_worker("rondo-train")), (SERVED, has_worker("rondo-train-worker")), (SERVED, has_loaded("libtorch_cpu.so"))])
def test_term_before_the_first_step(rondo, tmp_path, text, flags, moment):  # noqa: F811
    """From main() of the first program on, including the time between exec and main() of the next one."""
    process = start(rondo, text, tmp_path / "run", *flags, "--steps", 1000000)
    wait_until(lambda: moment(process.pid), "the moment has come")
    ranks = below(process.pid)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, (process.returncode, out, err)
    assert err.count(NOTHING_TO_SAVE) == 1, err
    all_gone(ranks)
    assert not list((tmp_path / "run").glob("checkpoints/*"))


@pytest.mark.parametrize("moment", [has_begun, has_worker("rondo"), has_worker("rondo-train-worker")])
def test_term_to_the_launcher_before_the_first_step(rondo, tmp_path, text, moment):  # noqa: F811
    process = rondo.start("run", "-n", 2, "--", rondo.program, "train", "--data", text, "--run-dir", tmp_path / "run", *SMALL,
                          "--steps", 1000000)
    wait_until(lambda: moment(process.pid), "the moment has come")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3 and err.count(NOTHING_TO_SAVE) == 1, (process.returncode, out, err)


def test_the_same_command_with_resume_begins_anew(rondo, train, tmp_path, text):  # noqa: F811
    """--resume covers the first start, with a missing directory, an interrupted run, and a continued one."""
    run = tmp_path / "new" / "run"
    command = ["train", "--data", text, "--run-dir", run, *SMALL, "--validation-fraction", 0, "--resume", "--steps"]
    process = rondo.start(*command, 1000000)
    wait_until(lambda: becomes("rondo-train-worker")(process.pid), "a rank begins")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 3, process.stderr.read()
    first = rondo(*command, 2)
    assert first.returncode == 0 and "no checkpoint yet" in first.stderr, first.stderr
    second = rondo(*command, 4)
    assert second.returncode == 0 and "no checkpoint yet" not in second.stderr, second.stderr
    assert [row["step"] for row in rows(run) if "loss" in row] == [1, 2, 3, 4]


def trains(run):
    return (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count('"loss"') > 3


@pytest.mark.parametrize("which, ranks", [(signal.SIGHUP, 1), (signal.SIGUSR1, 2), long(signal.SIGHUP, 2), long(signal.SIGUSR1, 1)])
def test_hangup_and_requested_signal_save(rondo, tmp_path, text, ranks, which):  # noqa: F811
    run = tmp_path / "run"
    asked = ["--signals-to-handle", "USR1,SIGUSR2"] if which == signal.SIGUSR1 else []
    process = start(rondo, text, run, "--nproc-per-node", ranks, "--steps", 1000000, "--log-every", 1, *asked)
    wait_until(lambda: trains(run), "it trains")
    process.send_signal(which)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3 and "pre-empted after step" in out, (process.returncode, out, err)
    assert len(checkpoints(run)) == 1


def test_signals_of_the_launcher_reach_the_ranks(rondo, tmp_path, text):  # noqa: F811
    """`rondo run --signals-to-handle USR1` makes `rondo train` handle it."""
    run = tmp_path / "run"
    process = rondo.start("run", "-n", 2, "--signals-to-handle", "SIGTERM,SIGUSR1", "--", rondo.program, "train", "--data", text,
                          "--run-dir", run, *SMALL, "--validation-fraction", 0, "--steps", 1000000, "--log-every", 1)
    wait_until(lambda: trains(run), "it trains")
    process.send_signal(signal.SIGUSR1)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3 and "stopped by SIGUSR1" in err and len(checkpoints(run)) == 1, (process.returncode, out, err)


@pytest.mark.parametrize("ranks", [long(1), 2])
def test_repeated_term_does_not_end_save(rondo, train, tmp_path, text, ranks):  # noqa: F811
    """Repeated within milliseconds, as by schedulers, until the process has ended."""
    run = tmp_path / "run"
    process = start(rondo, text, run, "--nproc-per-node", ranks, "--steps", 1000000, "--log-every", 1, "--width", 128)
    wait_until(lambda: trains(run), "it trains")

    def ended():
        process.send_signal(signal.SIGTERM)
        return process.poll() is not None

    wait_until(ended, "it has ended")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3 and "pre-empted after step" in out, (process.returncode, out, err)
    assert rondo("checkpoint", "verify", run / "checkpoints" / checkpoints(run)[-1]).returncode == 0


@pytest.mark.parametrize("ranks", [long(1), 2])
def test_a_terminal_that_is_gone(rondo_bin, clean_environment, tmp_path, text, ranks):  # noqa: F811
    """The terminal's window is closed: its programs receive HUP, and can no longer write to it."""
    run = tmp_path / "run"
    words = [rondo_bin / "rondo", "train", "--data", text, "--run-dir", run, *SMALL, "--validation-fraction", 0, "--nproc-per-node", ranks,
             "--steps", 1000000, "--log-every", 1]
    window, terminal = pty.openpty()
    process = subprocess.Popen(list(map(str, words)), env=clean_environment, cwd=tmp_path, stdin=terminal, stdout=terminal,
                               stderr=terminal, start_new_session=True, preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)))
    os.close(terminal)
    try:
        wait_until(lambda: os.read(window, 65536) and trains(run), "it trains")
        ranks_of = [process.pid, *worker_pids(process.pid).values()]
        os.close(window)
        process.wait(timeout=120)
        all_gone(ranks_of)
    finally:
        if alive(process.pid):
            process.kill()
    assert process.returncode == 3
    assert len(checkpoints(run)) == 1 and not (run / "run.lock").exists()


def test_ignored_signals_are_not_passed_on():
    """Under nohup, or in a shell's background, the programs that tests start still receive HUP and INT."""
    folder = pathlib.Path(__file__).parent
    look = "import signal; print([signal.getsignal(s) == signal.SIG_IGN for s in (signal.SIGHUP, signal.SIGINT)])"
    begin = f"import subprocess, sys; {{}}; subprocess.run([sys.executable, '-c', {look!r}], check=True)"
    for line, expected in (("pass", "[True, True]"), ("import conftest", "[False, False]")):
        found = subprocess.run(["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", sys.executable, "-c", begin.format(line)], check=True,
                               capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(folder)})
        assert found.stdout.strip() == expected


def test_processes_by_word(rondo, tmp_path, text):  # noqa: F811
    """--nproc-per-node accepts the values of `rondo run`; a leftover variable of another job does not change that."""
    environment = {"TORCHELASTIC_RUN_ID": "left-over", "CUDA_VISIBLE_DEVICES": ""}
    no_gpu = rondo("train", "--data", text, *SMALL, "--nproc-per-node", "gpu", env=environment)
    assert no_gpu.returncode == 2 and "--nproc-per-node gpu: no GPU" in no_gpu.stderr, no_gpu.stderr
    wrong = rondo("train", "--data", text, *SMALL, "--nproc-per-node", "many")
    assert wrong.returncode == 2 and "--nproc-per-node many" in wrong.stderr, wrong.stderr
    ranks = rondo("train", "--data", text, *SMALL, "--nproc-per-node", 2, "--steps", 1, "--run-dir", "two", "--json", "two.json",
                  env=environment)
    assert ranks.returncode == 0 and '"ranks": 2' in (tmp_path / "two.json").read_text(), ranks.stderr
    by_word = rondo("train", "--data", text, *SMALL, "--nproc-per-node", "auto", "--steps", 1, "--run-dir", "auto", "--batch-size", 1,
                    "--bind-to", "core", env=environment)
    assert by_word.returncode == 0, by_word.stderr
