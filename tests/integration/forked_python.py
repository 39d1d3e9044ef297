"""Python ranks that are forked from an interpreter which has imported torch: importing it takes longer than most tests of
ranks. As a program it is that interpreter; a rank imports rondo_torch itself, in its own environment."""
import contextlib
import gc
import json
import os
import pathlib
import runpy
import select
import signal
import subprocess
import sys
import traceback
import typing


class Ended(typing.NamedTuple):
    """A rank that has ended. `returncode` is negative for a signal, as in subprocess."""
    pid: int
    returncode: int
    out: str
    err: str


class Interpreter:
    """Runs Python programs as forks of one interpreter, which starts with the first of them."""

    def __init__(self):
        self.process = None

    def run(self, commands, folder, timeout, finalize=False):
        """Runs all commands at once: [(words, environment)], where words are a program with its arguments, or -c and its
        text. Returns what has ended, in the same order; after `timeout` seconds all are killed. With `finalize` Python is
        finalized at the end of each, which takes longer than importing torch."""
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            env=os.environ | {"OMP_NUM_THREADS": "1"})
        outputs = [(folder / f"forked-{number}.out", folder / f"forked-{number}.err") for number in range(len(commands))]
        ranks = [{"words": [str(word) for word in words], "environment": environment, "folder": str(folder), "outputs": list(map(str, files)),
                  "finalize": finalize}
                 for (words, environment), files in zip(commands, outputs)]
        self.process.stdin.write(json.dumps(ranks) + "\n")
        self.process.stdin.flush()
        pids = json.loads(self.process.stdout.readline())
        late = not select.select([self.process.stdout], [], [], timeout)[0]
        if late:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        codes = json.loads(self.process.stdout.readline())
        ended = [Ended(pid, code, *(file.read_text() for file in files)) for pid, code, files in zip(pids, codes, outputs)]
        assert not late, f"not within {timeout} s: {ended}"
        return ended

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()


def become(rank):
    """Makes this child the rank: its streams, folder, environment and arguments."""
    for number, path in zip((0, 1, 2), ("/dev/null", *rank["outputs"])):
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(rank["folder"])
    os.environ.clear()
    os.environ.update(rank["environment"])
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv[:] = ["-c", *rank["words"][2:]] if rank["words"][0] == "-c" else rank["words"]


def run(words):
    if words[0] == "-c":
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(0, str(pathlib.Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")


def leave_with(function, *words):
    """Calls the function and ends the process as Python would, but for the interpreter's finalization."""
    code = 0
    try:
        function(*words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve():
    """Forks the ranks of each line of standard input, and prints their ids at once and their exit codes at the end."""
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.optim
    import torch.distributed.tensor.parallel
    import torch.nn.parallel  # noqa: F401

    assert os.listdir("/proc/self/task") == [str(os.getpid())], "a thread would be missing in forks"
    gc.collect()
    gc.freeze()  # forks share these objects' memory, which a collection would copy
    for line in sys.stdin:
        pids = []
        for rank in json.loads(line):
            pids.append(os.fork())
            if pids[-1] == 0:
                become(rank)
                run(rank["words"]) if rank["finalize"] else leave_with(run, rank["words"])
                return
        print(json.dumps(pids), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    serve()
