"""rondo run with failures: the first failed rank, signals, restarts, and no leftovers."""
import os
import pathlib
import re
import signal
import socket
import sys
import time

import pytest
from launching import all_gone, alive, bash, by_rank, kill_launcher, one_run_directory, wait_until


# Runs until a signal ends it. bash runs a trap immediately during `wait`, and only afterwards during other commands. A
# signal while the shell starts the sleep can end the sleep; the shell must not exit successfully because of that.
PAUSE = "while :; do sleep 1000 & wait; done"


def test_the_root_cause_is_reported_first(rondo, tmp_path):
    os.mkfifo(tmp_path / "ready")
    result = rondo("run", "-n", 3, "--grace", "100s", *bash(
        "exec 3<>ready; [ $RANK = 1 ] && { read <&3; read <&3; echo 'bad tensor' >&2; exit 7; }; "
        f"trap 'echo follow-up >&2; exit 9' TERM; echo >&3; {PAUSE}"))
    assert result.returncode == 7
    report = result.stderr[result.stderr.index("rondo run:"):]
    first, *rest = report.splitlines()
    assert re.match(rf"rondo run: rank 1 on host {re.escape(socket.gethostname())} \(pid \d+\) exited with code 7", first)
    assert "    bad tensor" in rest
    assert any(re.match(r"  rank 0 \(pid \d+\) exited with code 9, .* later", line) for line in rest), report


@pytest.mark.parametrize("name", ["SEGV", "KILL", "ABRT"])
def test_signals_are_named(rondo, name):
    result = rondo("run", "-n", 2, "--grace", "100s", *bash(f"ulimit -c 0; [ $RANK = 1 ] && kill -{name} $$; exec sleep 100"))
    assert result.returncode == 128 + getattr(signal, "SIG" + name)
    assert f"rank 1" in result.stderr and f"was killed by SIG{name}" in result.stderr
    assert "rank 0" in result.stderr and "stopped by the launcher (SIGTERM)" in result.stderr


def test_the_error_file_is_honoured(rondo):
    write = ("import json,os,sys; json.dump({'message': {'message': 'ValueError: no data', 'extraInfo': {}}}, "
             "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')); sys.exit(5)")
    result = rondo("run", sys.executable, "-c", write)
    assert result.returncode == 5
    assert "error: ValueError: no data" in result.stderr


def test_an_error_file_tells_who_failed_first(rondo):
    # Rank 0 fails and hangs during its exit; rank 1 ends because of that.
    script = """
import json, os, signal, sys, time
if os.environ['RANK'] == '0':
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    json.dump({'message': 'the real reason'}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))
    open('failed', 'w').close()
    signal.sigwait([signal.SIGTERM])
    sys.exit(4)
deadline = time.monotonic() + 100
while not os.path.exists('failed') and time.monotonic() < deadline: time.sleep(0.001)
# The clock of file times ticks seldom.
while time.time() <= os.stat('failed').st_mtime + 0.05: pass
sys.exit(1)
"""
    result = rondo("run", "-n", 2, "--grace", "100s", sys.executable, "-c", script)
    assert result.returncode == 4
    assert re.search(r"rondo run: rank 0 .*exited with code 4", result.stderr)
    assert "the real reason" in result.stderr


def test_stderr_in_a_file_is_still_reported(rondo, tmp_path):
    result = rondo("run", "--log-dir", "logs", "-r", "2", *bash("echo in the file >&2; exit 1"))
    assert result.returncode == 1
    assert "    in the file" in result.stderr and str(one_run_directory(tmp_path / "logs")) in str(tmp_path / result.stderr.split("logs: ")[1].strip())


def test_kills_workers_that_ignore_term(rondo, tmp_path):
    os.mkfifo(tmp_path / "ready")
    started = time.monotonic()
    result = rondo("run", "-n", 2, "--grace", "300ms", *bash(
        f"exec 3<>ready; [ $RANK = 1 ] && {{ read <&3; exit 6; }}; trap '' TERM; echo >&3; {PAUSE}"))
    assert result.returncode == 6
    assert "stopped by the launcher (SIGKILL)" in result.stderr
    assert time.monotonic() - started >= 0.3


def test_suspended_rank_is_named_and_killed(rondo, tmp_path):
    os.mkfifo(tmp_path / "go")
    process = rondo.start("run", "-n", 2, *bash("[ $RANK = 1 ] && { echo $$ > pid; exec sleep 100; }; read < go; exit 1"))
    pid = int(wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "rank 1 runs"))
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: " T " in pathlib.Path(f"/proc/{pid}/stat").read_text(), "rank 1 is suspended")
    (tmp_path / "go").write_text("\n")
    assert process.wait(timeout=120) == 1
    assert "it was suspended (SIGSTOP)" in process.stderr.read()
    all_gone([pid])


def test_preempted_workers_pass_their_code_through(rondo, tmp_path):
    os.mkfifo(tmp_path / "pid")
    # Rank 0 keeps saving until the launcher has noticed the end of rank 1, whose process id is free then.
    result = rondo("run", "-n", 2, "--max-restarts", 3, "--grace", "100s", *bash(
        ": > $RONDO_PREEMPTION_FILE; [ $RANK = 1 ] && { echo $$ > pid; exit 3; }; read first < pid; "
        "while kill -0 $first; do :; done 2>/dev/null; echo saved; exit 3"))
    assert result.returncode == 3
    assert by_rank(result.stdout) == {0: ["saved"]}
    assert "pre-empted" in result.stderr and "restart" not in result.stderr


def test_code_3_alone_is_no_preemption(rondo):
    result = rondo("run", "-n", 2, "--max-restarts", 1, *bash("[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3"))
    assert result.returncode == 0
    assert "exited with code 3" in result.stderr and "restart 1 of 1" in result.stderr
    assert "pre-empted" not in result.stderr


def test_restarts_start_all_workers_again(rondo, scratch):
    result = rondo("run", "-n", 2, "--max-restarts", 3, *bash(
        "echo attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS port $MASTER_PORT store "
        "$(stat -Lc %i /proc/self/fd/$RONDO_STORE_FD); [ $TORCHELASTIC_RESTART_COUNT = 2 ] || { [ $RANK = 1 ] && exit 8; exec sleep 100; }"))
    assert result.returncode == 0, result.stderr
    lines = by_rank(result.stdout)[1]
    assert [line.split()[1] for line in lines] == ["0", "1", "2"]
    assert len({line.split()[-1] for line in lines}) == 3  # every attempt has its own store
    assert "restart 2 of 3" in result.stderr
    assert list(scratch.iterdir()) == []


def test_every_attempt_has_its_own_log(rondo, tmp_path):
    assert rondo("run", "--max-restarts", 1, "--log-dir", "logs", "-r", "3", *bash("echo try $TORCHELASTIC_RESTART_COUNT; exit 1")).returncode == 1
    run = one_run_directory(tmp_path / "logs")
    assert [(run / f"attempt_{n}" / "0" / "stdout.log").read_text() for n in (0, 1)] == ["try 0\n", "try 1\n"]


def test_a_program_that_cannot_be_started(rondo, tmp_path):
    (tmp_path / "program").write_text("#!/no/such/interpreter\n")
    (tmp_path / "program").chmod(0o755)
    result = rondo("run", "-n", 2, "./program")
    assert result.returncode == 127
    assert "rank 0" in result.stderr and "could not be started: No such file or directory" in result.stderr


def test_restarts_end(rondo):
    result = rondo("run", "-n", 2, "--max-restarts", 1, *bash("exit 8"))
    assert result.returncode == 8
    assert result.stderr.count("starting all") == 1


READY = f"echo ready; {PAUSE}"


def start_ready(rondo, script, *flags, ranks=2, **options):
    process = rondo.start("run", "-n", ranks, *flags, *bash(script), **options)
    ready = 0
    while ready < ranks:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        ready += line.endswith("ready\n")
    return process


# Not a shell: bash ignores SIGQUIT, and its children die of the other signals. A signal may arrive while "ready" is
# being written; a handler must not print to a stream in use, so this one line bypasses it.
WAITING = """
import os, signal, sys, time
def handle(number, frame):
    print("got", sys.argv[1], flush=True)
    sys.exit(0)
signal.signal(getattr(signal, "SIG" + sys.argv[1]), handle if sys.argv[2:] else signal.SIG_DFL)
os.write(1, b"ready\\n")
time.sleep(100)
"""


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
def test_signals_are_forwarded(rondo, name):
    number = getattr(signal, "SIG" + name)
    process = start_ready(rondo, f"exec {sys.executable} -c '{WAITING}' {name} handled")
    process.send_signal(number)
    output = process.stdout.read()
    assert process.wait(timeout=120) == 0
    assert by_rank(output) == {0: [f"got {name}"], 1: [f"got {name}"]}
    process = start_ready(rondo, f"exec {sys.executable} -c '{WAITING}' {name}")
    process.send_signal(number)
    assert process.wait(timeout=120) == 128 + number
    assert f"stopped by SIG{name}" in process.stderr.read()


def test_workers_that_save_make_job_resumable(rondo):
    process = start_ready(rondo, f"trap 'exit 3' TERM; {READY}")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 3


def test_other_signals_on_request(rondo):
    process = start_ready(rondo, f"trap 'echo got USR1; exit 0' USR1; {READY}", "--signals-to-handle", "SIGTERM,SIGUSR1")
    process.send_signal(signal.SIGUSR1)
    assert by_rank(process.stdout.read()) == {0: ["got USR1"], 1: ["got USR1"]}


def test_a_second_interrupt_kills(rondo):
    process = start_ready(rondo, f"trap 'echo ready' INT; {READY}", "--grace", "1000s")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().endswith("ready\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130


def test_nohup_is_respected(rondo):
    process = start_ready(rondo, f"trap 'exit 5' TERM; {READY}", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=120)
    assert "SIGHUP" not in process.stderr.read()


# Each worker starts a child, a grandchild in a separate session, and a daemon (its parent ends at once).
FAMILY = """
sleep 1000 & echo $! >> pids
setsid sleep 1001 & echo $! >> pids
(setsid bash -c 'trap "" TERM HUP; echo $$ >> pids; exec sleep 1004' &)
echo $$ >> pids
until [ $(wc -l < pids) -ge 8 ]; do :; done
echo ready
"""


def family_pids(tmp_path):
    return [int(pid) for pid in (tmp_path / "pids").read_text().split()]


@pytest.mark.parametrize("victim", ["launcher", "launcher of a suspended guardian", "guardian", "group"])
def test_nothing_survives_a_kill(rondo, tmp_path, scratch, victim):
    process = start_ready(rondo, FAMILY + "exec sleep 1002", start_new_session=True)
    pids = family_pids(tmp_path)
    assert len(pids) == 8 and all(alive(pid) for pid in pids)
    guardian = int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    # `pkill -9 -f 'rondo run'` must not match both halves of the launcher.
    assert "rondo" not in pathlib.Path(f"/proc/{guardian}/cmdline").read_text()
    if victim.startswith("launcher"):
        if "suspended" in victim:
            os.kill(guardian, signal.SIGSTOP)
        process.kill()
    elif victim == "guardian":
        os.kill(guardian, signal.SIGKILL)
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=120)
    all_gone(pids + [guardian])
    wait_until(lambda: list(scratch.iterdir()) == [], "no file is left in TMPDIR")
    if victim == "guardian":
        assert process.returncode == 128 + signal.SIGKILL
        assert "guardian" in process.stderr.read()


def test_nothing_is_left_after_a_normal_end(rondo, tmp_path, scratch):
    result = rondo("run", "-n", 2, "--grace", "200ms", *bash(FAMILY + "exit 0"))
    assert result.returncode == 0, result.stderr
    assert not any(alive(pid) for pid in family_pids(tmp_path))
    assert list(scratch.iterdir()) == []


def test_nothing_is_left_after_a_failure(rondo, tmp_path, scratch):
    result = rondo("run", "-n", 2, "--grace", "200ms", *bash(FAMILY + "[ $RANK = 0 ] && exit 1; exec sleep 1003"))
    assert result.returncode == 1
    assert not any(alive(pid) for pid in family_pids(tmp_path))
    assert list(scratch.iterdir()) == []


def test_next_start_removes_leftovers(rondo, scratch):
    process = rondo.start("run", "-n", 1, *bash("echo up; exec sleep 100"))
    process.stdout.readline()
    left, = scratch.glob("rondo-run-*")
    # Other jobs do not touch it during its lifetime.
    assert rondo("run", "true").returncode == 0
    assert left.exists()
    kill_launcher(process)
    assert left.exists()
    assert rondo("run", "true").returncode == 0
    assert list(scratch.glob("rondo-*")) == []
