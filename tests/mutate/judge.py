"""Runs a program with limits on time and memory, and reports what is wrong with its end."""
import dataclasses
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time

# Printed by the code in a weights file, which must never run.
RAN = "the file's own code ran"
LIBRARY_WORDS = re.compile(r"\[json\.exception|terminate called|std::bad_|basic_string|vector::_M|\bsto(?:i|l|ll|ul|ull|f|d|ld)\b|Exception raised from|frame #\d|enforce fail|filesystem error")
SANITIZER_WORDS = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
LONGEST_MESSAGE = 20_000
# Programs whose standard output passes on foreign text: rows of data, or the output of a child program.
PASS_ON = {"rondo-predict", "rondo"}


@dataclasses.dataclass
class End:
    code: int
    seconds: float
    peak_bytes: int
    out: str
    err: str
    timed_out: bool
    program: str


def run(command, cwd, env, seconds, address_bytes, stdout=None):
    """Runs `command` and returns its end. `address_bytes` limits its address space, 0 does not. `stdout`: a file in
    place of a pipe."""

    def limit():
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if address_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (address_bytes, address_bytes))

    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(word) for word in command], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                                   stdout=stdout or out, stderr=err, preexec_fn=limit)
        late = threading.Event()

        def stop():
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, stop)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read(1 << 20).decode(errors="backslashreplace"))
    return End(process.returncode, time.monotonic() - begin, usage.ru_maxrss * 1024, *texts, late.is_set(), pathlib.Path(command[0]).name)


def complaints(end, names, most_bytes):
    """Returns the failures as texts; empty for a good end. An error message must contain one of `names`."""
    found = []
    if end.timed_out:
        found.append(f"did not end within {end.seconds:.1f} s")
    elif end.code < 0:
        found.append(f"was killed by {signal.Signals(-end.code).name}")
    elif end.code not in (0, 1, 2, 3):
        found.append(f"ended with {end.code}")
    if end.peak_bytes > most_bytes:
        found.append(f"took {end.peak_bytes >> 20} MiB")
    if match := SANITIZER_WORDS.search(end.err):
        found.append(f"a sanitizer reports: {end.err[match.start():match.start() + 300]}")
    if match := LIBRARY_WORDS.search(end.err):
        found.append(f"says '{match.group()}', a library's words")
    if RAN in end.out + end.err:
        found.append("ran the code of a weights file")
    if match := CONTROL.search(end.err if end.program in PASS_ON else end.err + end.out):
        found.append(f"writes the control character {match.group()!r}")
    if len(end.err) > LONGEST_MESSAGE:
        found.append(f"writes {len(end.err)} characters to standard error")
    if end.code in (1, 2) and not end.timed_out and not any(name in end.err + end.out for name in names):
        found.append(f"names none of {', '.join(names)}")
    return found


def programs(environment=os.environ):
    default = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin"
    return pathlib.Path(environment.get("RONDO_BIN", default)).resolve()
