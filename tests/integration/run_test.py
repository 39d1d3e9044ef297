"""rondo run: the workers' environment, flags, and destinations of output."""
import os
import pathlib
import pty
import re
import resource
import signal
import socket
import subprocess
import sys

import pytest
from launching import (TORCHRUN_VARIABLES, all_gone, alive, bash, by_rank, one_run_directory, read_terminal,
                       set_terminal_width, wait_until)


def test_workers_get_torchruns_environment(rondo):
    result = rondo("run", "-n", 2, "--role", "trainer", "--max-restarts", 4, "--rdzv-id", "job7", "env")
    assert result.returncode == 0, result.stderr
    ranks = {rank: dict(line.split("=", 1) for line in lines if "=" in line) for rank, lines in
             by_rank(result.stdout).items()}
    assert sorted(ranks) == [0, 1]
    for rank, environment in ranks.items():
        expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                    "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "trainer", "ROLE_RANK": str(rank),
                    "ROLE_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0",
                    "TORCHELASTIC_MAX_RESTARTS": "4", "TORCHELASTIC_RUN_ID": "job7", "OMP_NUM_THREADS": "1",
                    "RONDO_LAUNCHER": "1"}
        assert {key: environment.get(key) for key in expected} == expected
        assert set(TORCHRUN_VARIABLES) <= set(environment)
    assert ranks[0]["MASTER_PORT"] == ranks[1]["MASTER_PORT"]
    assert ranks[0]["TORCHELASTIC_ERROR_FILE"] != ranks[1]["TORCHELASTIC_ERROR_FILE"]


def test_all_workers_inherit_one_store(rondo):
    result = rondo("run", "-n", 2, *bash("stat -Lc %i /proc/self/fd/$RONDO_STORE_FD; readlink /proc/self/fd/$RONDO_STORE_FD"))
    ranks = by_rank(result.stdout)
    assert ranks[0] == ranks[1] and "memfd:" in ranks[0][1], result.stdout


def test_omp_threads(rondo):
    echo = bash("echo ${OMP_NUM_THREADS-unset}")
    assert by_rank(rondo("run", "-n", 1, *echo).stdout) == {0: ["unset"]}
    assert by_rank(rondo("run", "-n", 2, *echo).stdout) == {0: ["1"], 1: ["1"]}
    assert by_rank(rondo("run", "-n", 2, *echo, env={"OMP_NUM_THREADS": "3"}).stdout)[0] == ["3"]
    assert by_rank(rondo("run", "-n", 2, "--omp-threads", 5, *echo, env={"OMP_NUM_THREADS": "3"}).stdout)[0] == ["5"]


def test_only_first_rank_gets_standard_input(rondo):
    result = rondo("run", "-n", 2, *bash("read -r line; echo \"got:$line\""), input="hello\n")
    assert by_rank(result.stdout) == {0: ["got:hello"], 1: ["got:"]}


def test_leaves_free_port_to_the_worker(rondo):
    # Binds as PyTorch's store does: an earlier connection in TIME_WAIT does not matter.
    bind = ("import os,socket; s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
            "s.bind(('127.0.0.1', int(os.environ['MASTER_PORT']))); s.listen(); print('bound')")
    first = rondo("run", sys.executable, "-c", bind)
    assert by_rank(first.stdout) == {0: ["bound"]}, first.stderr
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 29500))
        except OSError:
            pass  # another process has it, which is sufficient, too
        assert rondo("run", "--standalone", sys.executable, "-c", bind).returncode == 0


def test_cores_are_shared_out(rondo):
    allowed = sorted(os.sched_getaffinity(0))
    result = rondo("run", "-n", 2, "--bind-to", "core", sys.executable, "-c",
                   "import os; print(sorted(os.sched_getaffinity(0)))")
    ranks = {rank: eval(lines[0]) for rank, lines in by_rank(result.stdout).items()}
    if len(allowed) >= 2:
        assert not set(ranks[0]) & set(ranks[1])
    assert set(ranks[0]) | set(ranks[1]) <= set(allowed)
    numa = rondo("run", "-n", 2, "--bind-to", "numa", sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))")
    assert numa.returncode == 0, numa.stderr


def test_a_wrapper_stands_before_one_ranks_program(rondo):
    result = rondo("run", "-n", 2, "--wrap", "1:env WRAPPED='by hand'", *bash("echo ${WRAPPED-no}"))
    assert by_rank(result.stdout) == {0: ["no"], 1: ["by hand"]}, result.stderr


def test_programs_in_python_are_started_as_torchrun_does(rondo, tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import sys, os\nprint('python', sys.argv[1:], os.environ['RANK'])\n")
    for words in (["program.py", "--x", "1"], ["--", "program.py", "--x", "1"], ["--run-path", script, "--x", "1"],
                  ["-m", "program", "--x", "1"], ["--module", "program", "--x", "1"]):
        result = rondo("run", *words, env={"PYTHONPATH": str(tmp_path)})
        assert by_rank(result.stdout) == {0: ["python ['--x', '1'] 0"]}, (words, result.stderr)
    script.write_text("#!/bin/sh\necho shell $RANK\n")
    script.chmod(0o755)
    assert by_rank(rondo("run", "--no-python", "./program.py").stdout) == {0: ["shell 0"]}
    (tmp_path / "plain").write_text("echo no interpreter line\n")
    (tmp_path / "plain").chmod(0o755)
    assert by_rank(rondo("run", "./plain").stdout) == {0: ["no interpreter line"]}


@pytest.mark.parametrize("words, variables", [
    (["--nproc_per_node", "2"], {}), (["--nproc-per-node=2"], {}), (["-n2"], {}), ([], {"PET_NPROC_PER_NODE": "2"}),
    (["-n", "2"], {"PET_NPROC_PER_NODE": "5"}),
    (["--nproc_per_node=2", "--standalone", "--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0",
      "--rdzv_conf", "timeout=3", "--monitor-interval", "0.5", "--start-method", "fork", "--node_rank", "0",
      "--local-addr", "localhost", "--event-log-handler", "null"], {}),
])
def test_flags_in_every_spelling(rondo, words, variables):
    result = rondo("run", *words, *bash("echo $WORLD_SIZE"), env=variables)
    assert by_rank(result.stdout) == {0: ["2"], 1: ["2"]}, result.stderr


def test_counts_by_name(rondo):
    cores = by_rank(rondo("run", "--nproc-per-node", "cpu", *bash("echo $WORLD_SIZE")).stdout)
    assert 1 <= len(cores) <= len(os.sched_getaffinity(0))
    assert len(by_rank(rondo("run", "-n", "auto", "true").stdout)) == 0


def test_flags_behind_the_program_are_the_programs(rondo):
    result = rondo("run", "-n", 1, "echo", "-n", "2", "--help", "--tee", "9")
    assert result.stdout == "[rank 0] 2 --help --tee 9\n"


def test_no_line_is_lost_or_mixed(rondo):
    count = 20000
    result = rondo("run", "-n", 2, sys.executable, "-c", f"""
import os, sys
for i in range({count}):
    print(i, 'x' * (i % 200))
sys.stdout.write('no end of line')
print('last words', file=sys.stderr)
""")
    expected = [f"{i} {'x' * (i % 200)}" for i in range(count)] + ["no end of line"]
    assert by_rank(result.stdout) == {0: expected, 1: expected}
    assert by_rank(result.stderr) == {0: ["last words"], 1: ["last words"]}


def test_a_line_written_in_pieces_stays_whole(rondo):
    result = rondo("run", "-n", 2, *bash("for i in 1 2 3; do printf piece$i; read -t 0.02 <> <(:); done; echo"))
    assert by_rank(result.stdout) == {0: ["piece1piece2piece3"], 1: ["piece1piece2piece3"]}


def test_what_grandchildren_write_last_is_shown(rondo):
    result = rondo("run", "-n", 1, "--grace", "20s", *bash("(trap 'echo late; exit' TERM; echo ready; sleep 1000 & until wait; do :; done) & exit 0"))
    assert result.returncode == 0
    assert "[rank 0] late" in result.stdout or "ready" not in result.stdout


def test_only_chosen_ranks_are_shown(rondo):
    result = rondo("run", "-n", 3, "--local-ranks-filter", "0,2", *bash("echo shown"))
    assert sorted(by_rank(result.stdout)) == [0, 2]


def test_redirects_go_to_files_only(rondo, tmp_path):
    result = rondo("run", "-n", 2, "--log-dir", "logs", "-r", "3", "--rdzv-id", "job", *bash("echo out$RANK; echo err$RANK >&2"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    run = one_run_directory(tmp_path / "logs")
    assert run.name.startswith("job_")
    for rank in (0, 1):
        assert (run / "attempt_0" / str(rank) / "stdout.log").read_text() == f"out{rank}\n"
        assert (run / "attempt_0" / str(rank) / "stderr.log").read_text() == f"err{rank}\n"


def test_tee_goes_to_files_and_console_per_rank(rondo, tmp_path):
    result = rondo("run", "-n", 2, "--log_dir", "logs", "--tee", "0:1,1:2", *bash("echo out$RANK; echo err$RANK >&2"))
    assert by_rank(result.stdout) == {0: ["out0"], 1: ["out1"]}
    run = one_run_directory(tmp_path / "logs") / "attempt_0"
    assert sorted(str(path.relative_to(run)) for path in run.rglob("*.log")) == ["0/stdout.log", "1/stderr.log"]
    assert (run / "1" / "stderr.log").read_text() == "err1\n"


def test_a_log_directory_alone_keeps_everything(rondo, tmp_path):
    result = rondo("run", "--log-dir", "logs", *bash("echo out; echo err >&2"))
    assert "out" in result.stdout and "err" in result.stderr
    run = one_run_directory(tmp_path / "logs") / "attempt_0" / "0"
    assert (run / "stdout.log").read_text() == "out\n" and (run / "stderr.log").read_text() == "err\n"


def test_redirects_without_a_directory_say_where(rondo, scratch):
    result = rondo("run", "-r", "1", *bash("echo out"))
    directory = pathlib.Path(re.search(r"logs are in (\S+)", result.stderr)[1])
    assert (directory / "attempt_0" / "0" / "stdout.log").read_text() == "out\n"


def test_full_log_disk_keeps_job_running(rondo, tmp_path):
    def limit_file_size():  # simulates a full disk: writes beyond the limit fail
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (18 << 20, 18 << 20))

    result = rondo("run", "--log-dir", "logs", "-t", "1", *bash("seq 3000000; echo done"), preexec_fn=limit_file_size)
    assert result.stdout.endswith("[rank 0] done\n")
    assert "stdout.log" in result.stderr and "File too large" in result.stderr


@pytest.fixture
def on_terminal(rondo):
    """on_terminal(*words, **env) returns the output of `rondo run *words` on a terminal of 80 columns and 24 rows."""
    def run(*words, **env):
        leader, follower = pty.openpty()
        set_terminal_width(follower, 80)
        process = rondo.start("run", *words, stdout=follower, stderr=follower, env={"TERM": "xterm"} | env)
        os.close(follower)
        output = read_terminal(leader)
        assert process.wait() == 0
        return output

    return run


def test_colours_and_progress_lines_on_a_terminal(on_terminal):
    assert "\x1b[36m[rank 0]\x1b[0m hi" in on_terminal("echo", "hi")
    # Workers know that their output is shown on a terminal.
    assert "width 71" in on_terminal(*bash("echo width $RONDO_TERMINAL_WIDTH"))
    assert "\x1b[36m" not in on_terminal("echo", "hi", NO_COLOR="1")
    # A terminal without escape sequences gets none, and no progress bars.
    dumb = on_terminal(*bash(r"echo hi [$RONDO_TERMINAL_WIDTH]; printf '\r10%%'; printf '\r20%%\n'"), TERM="dumb")
    assert "\x1b" not in dumb and "[rank 0] hi []" in dumb
    progress = on_terminal(*bash(r"printf '\r10%%'; read -t 0.1 <> <(:); printf '\r20%%'; echo"), NO_COLOR="1")
    assert "[rank 0] 20%" in progress


def test_rank_0_keeps_the_terminal(on_terminal, rondo, tmp_path):
    """A program on rank 0 that queries the terminal's size gets it, minus the width of "[rank 0] "."""
    program = tmp_path / "asks.py"
    program.write_text("""
import os, sys
ranks = "terminal" if all(os.isatty(stream) for stream in (1, 2)) else "no terminal"
size = tuple(os.get_terminal_size(1)) if os.environ["RANK"] == "0" else ()  # raises without one
print("rank", os.environ["RANK"], ranks, size, "output ends" + "." * 20000)
print("error", file=sys.stderr)
""")
    output = on_terminal("-n", 2, sys.executable, program, NO_COLOR="1").replace("\r\n", "\n")
    assert "[rank 0] rank 0 terminal (71, 24) output ends" + "." * 20000 + "\n" in output
    assert "[rank 1] rank 1 no terminal () output ends" in output
    assert "[rank 0] error\n" in output and "\r" not in output
    # The launcher's own output decides: a pipe remains a pipe.
    piped = rondo("run", sys.executable, "-c", "import os; print(os.isatty(1))")
    assert piped.stdout == "[rank 0] False\n"


@pytest.mark.parametrize("goes_to", ["terminal", "pipe"])
def test_streams_to_one_place_keep_lines_whole(on_terminal, rondo, goes_to):
    """A line that is longer than what a terminal or a pipe takes at once waits for its reader."""
    program = "import sys; print('.' * 500000); print('error', file=sys.stderr)"
    words = ["-n", 2, sys.executable, "-c", program]
    if goes_to == "terminal":
        output = on_terminal(*words, NO_COLOR="1").replace("\r\n", "\n")
    else:
        output = subprocess.run([str(word) for word in (rondo.program, "run", *words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, check=True, timeout=120).stdout
    lines = [f"[rank {rank}] {text}" for rank in (0, 1) for text in ("." * 500000, "error")]
    assert sorted(output.splitlines()) == sorted(lines)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(rondo, tmp_path, closed):
    command = f"'{rondo.program}' run -n 2 sh -c 'echo out; echo err >&2; : > ran$RANK' {closed}"
    assert subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True).returncode == 0
    assert (tmp_path / "ran0").exists() and (tmp_path / "ran1").exists()


def test_closed_output_ends_the_job(rondo):
    process = rondo.start("run", "-n", 1, "yes")
    assert process.stdout.readline() == "[rank 0] y\n"
    process.stdout.close()
    process.stdout = None
    assert process.wait(timeout=120) == 128 + signal.SIGPIPE


def test_blocked_output_does_not_block_signals(rondo):
    process = rondo.start("run", "--grace", "0.3s", *bash("trap '' TERM; echo $$ >&2; while :; do echo filling; done"))
    pid = int(re.search(r"\d+$", process.stderr.readline())[0])
    wait_until(lambda: pathlib.Path(f"/proc/{pid}/wchan").exists() and alive(pid), "the worker runs")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 128 + signal.SIGTERM
    all_gone([pid])
