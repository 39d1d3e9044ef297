"""Handwritten attacks and accidents, one for each fault that was once found by hand. Each takes a Workplace and returns
the failures, as judge.complaints() does."""
import dataclasses
import json
import os
import pathlib
import select
import signal
import stat
import struct
import subprocess
import threading

import corpus
import judge
import mutations

GIB = 1 << 30
OLD = "what was there before\n"


@dataclasses.dataclass
class Workplace:
    binaries: pathlib.Path
    root: pathlib.Path   # the corpus
    folder: pathlib.Path  # empty, for this attack alone
    env: dict
    # As many kinds of files, and inputs as large, as `make mutate` tries; else the short run of mutate_test.py.
    whole: bool = True

    def run(self, words, cwd, seconds=60, stdout=None, more=None):
        return judge.run([self.binaries / words[0], *words[1:]], cwd, self.env | (more or {}), seconds, 0, stdout)

    def copy_of(self, name):
        return corpus.copy(self.root, corpus.Case(name, ".", []), self.folder / name)

    def one_case_of_each_file(self):
        """Returns one case per reader of a file, for programs that start no processes."""
        files = [case for case in corpus.cases(self.root) if case.is_file and case.command[0] not in SLOW]
        return {(case.reads, case.target, case.sealed): case for case in reversed(files)}.values()


# Programs that start processes; attacks on every case skip them.
SLOW = ("rondo-train", "rondo-train-worker", "rondo-profile", "rondo-bench", "rondo-bench-dev")
PLAN = ["rondo-plan", "profile.json", "--memory-limit", "64MiB", "--quiet", "--plan-time-limit", "0.2s"]
TRAIN = ["rondo-train", *corpus.MLP, *corpus.TRAIN]
CODECS = ["rondo-bench-dev", "codecs", "--codec", "int8", "--size", "64KiB", "--runs", "1"]
PROFILE = ["rondo-profile", *corpus.GPT[:2], "--model-config", corpus.CONFIG, "--passes", "1", "--largest", "16KiB", "--batch-size", "1"]
EPOCH = ["rondo-train", *corpus.MLP, "--epochs", "1", "--batch-size", "8", "--matmul", "libtorch", "--seed", "1"]
# Programs that start within milliseconds.
QUICK = ("rondo-report", "rondo-simulate", "rondo-plan", "rondo-top")
# Folder of the corpus, and words, with OUT for the output path and NEW for a name that does not exist.
WRITERS = {
    "report -o": ("run", ["rondo-report", ".", "-o", "OUT"]),
    "report --json": ("run", ["rondo-report", ".", "--json", "OUT"]),
    "simulate --json": ("plan", ["rondo-simulate", "profile.json", "--json", "OUT"]),
    **{f"plan {flag}": ("plan", [*PLAN, flag, "OUT"])
       for flag in ("--json", "--plan-out", "--html", "--fsdp2", "--write-mps", "--write-profile")},
    "checkpoint verify --json": ("checkpoint", ["rondo-checkpoint", "verify", "saved", "--json", "OUT"]),
    "simulate --svg": ("plan", ["rondo-simulate", "--synthetic", "gpt:layers=4,dim=64", "--strategy", "pipeline", "--stages", "2",
                                "--svg", "OUT"]),
    "simulate --mesh --svg": ("plan", ["rondo-simulate", "--synthetic", "gpt:layers=4,dim=64", "--mesh", "pipeline=2", "--svg", "OUT"]),
    **{f"checkpoint {word} --json": (folder, ["rondo-checkpoint", word, *words, "--json", "OUT"]) for word, folder, words in (
        ("inspect", "checkpoint", ["saved"]), ("diff", "checkpoint", ["saved", "saved"]),
        ("convert", "checkpoint", ["model.safetensors", "x.safetensors", "--overwrite"]),
        ("reshard", "trained", ["parts", "NEW", "--parts", "3"]), ("merge", "trained", ["parts", "NEW"]))},
    "checkpoint convert": ("checkpoint", ["rondo-checkpoint", "convert", "model.safetensors", "OUT", "--overwrite"]),
    "train --json": ("trained", [*TRAIN, "--json", "OUT"]),
    "train --help-all --json": ("plan", ["rondo-train", "--help-all", "--json", "OUT"]),
    "train csv-file": ("trained", [*EPOCH, "--log-to", "csv", "--set", "csv-file=OUT"]),
    "train jsonl-file": ("trained", [*EPOCH, "--log-to", "jsonl", "--set", "jsonl-file=OUT"]),
    "profile --json": ("plan", [*PROFILE, "--json", "OUT"]),
    "tokenize --json": ("trained", ["rondo-tokenize", "text.txt", "--output", "NEW", "--json", "OUT"]),
    "evaluate --json": ("trained", ["rondo-evaluate", "mlp", "--json", "OUT"]),
    "predict -o": ("trained", ["rondo-predict", "mlp", "--data", "table.csv", "--output", "OUT"]),
    "export -o": ("trained", ["rondo-export", "mlp", "--output", "OUT", "--overwrite"]),
    "export --json": ("trained", ["rondo-export", "mlp", "--output", "model.safetensors", "--overwrite", "--json", "OUT"]),
    "top --json": ("trained", ["rondo-top", "mlp", "--json", "OUT"]),
    "doctor --json": ("plan", ["rondo-doctor", "--json", "OUT"]),
    "bench-dev codecs --json": ("plan", [*CODECS, "--json", "OUT"]),
    "bench collectives --html": ("plan", ["rondo-bench", "collectives", "--explain", "ring", "--operations", "all_reduce", "--ranks", "2", "--html",
                                          "OUT"]),
}
# Writers that replace a file atomically by its name.
ONLY_FILES = {"checkpoint convert", "predict -o", "export -o"}
# Places where programs write to a flag's path, as "source file:the argument", and the writers that try them.
# mutate_test.py requires all of them.
WRITES = {
    "apps/report/main:report.path": ["report -o"],
    "apps/report/main:json": ["report --json"],
    "apps/simulate/main:f.json": ["simulate --json"],
    "apps/simulate/main:f.svg": ["simulate --svg"],
    "apps/simulate/main:job.svg": ["simulate --mesh --svg"],
    **{f"apps/plan/main:f.{field}": [f"plan {flag}"] for field, flag in (
        ("json", "--json"), ("plan_out", "--plan-out"), ("html", "--html"), ("fsdp2", "--fsdp2"), ("mps", "--write-mps"),
        ("profile_out", "--write-profile"))},
    "apps/checkpoint/inspect:options->json": [f"checkpoint {word} --json" for word in ("inspect", "verify", "diff")],
    "apps/checkpoint/convert:options->json": [f"checkpoint {word} --json" for word in ("convert", "reshard", "merge")],
    "apps/checkpoint/convert:destination": ["checkpoint convert"],
    "apps/train/training_run:flags.json": ["train --json"],
    "apps/train/train_command_line:value_of": ["train --help-all --json"],
    "rondo/train/log_targets/csv/csv_log:file": ["train csv-file"],
    "rondo/train/log_targets/jsonl/json_log:file": ["train jsonl-file"],
    "apps/profile/main:flags.json": ["profile --json"],
    "apps/tokenize/main:flags.json": ["tokenize --json"],
    "apps/evaluate/main:flags.json": ["evaluate --json"],
    "apps/predict/main:flags.output": ["predict -o"],
    "apps/export/main:flags.output": ["export -o"],
    "apps/export/main:flags.json": ["export --json"],
    "apps/top/main:json": ["top --json"],
    "apps/doctor/main:json": ["doctor --json"],
    "apps/bench/harness/benchmark:target": ["bench-dev codecs --json"],
    "apps/bench/collectives/command:page": ["bench collectives --html"],
}
GOES_ON = {"train csv-file", "train jsonl-file"}
# Places that need no writer, with reasons.
OTHER_WRITES = {
    "apps/bench/dev/loader:path": "a text of the bench's own",
    "apps/new/main:folder": "files of a folder that rondo new has made",
}


def output(place, writer):
    """Tries every kind of file as a program's output path. The short run tries programs that take long to start with fewer
    kinds: all use the functions that quick programs, or `checkpoint convert`, are tried with."""
    folder, words = WRITERS[writer]
    every_kind = place.whole or words[0] in QUICK or writer == "checkpoint convert"
    home = place.copy_of(folder)
    ending = ".safetensors" if writer == "checkpoint convert" else ".out"
    found = []

    def write(name, target, code):
        here = {"OUT": str(target), "NEW": f"new {name}"}
        end = place.run([here.get(word, word.replace("=OUT", f"={target}")) for word in words], home)
        found.extend(f"{name}: {what}" for what in judge.complaints(end, (target.name,), 4 * GIB))
        if end.code != code:
            found.append(f"{name}: ended with {end.code}, expected {code}: {end.err[-300:]}")

    def expect(name, holds):
        if not holds:
            found.append(name)

    spot = place.folder / "regular"
    spot.mkdir()
    if every_kind:
        file = spot / f"file{ending}"
        file.write_text(OLD)
        file.chmod(0o640)
        write("regular file", file, 0)
        expect("regular file: nothing was written", file.read_bytes() != OLD.encode())
        expect("regular file: lost its permissions", stat.S_IMODE(file.stat().st_mode) == 0o640)
        expect("regular file: left others behind", [entry.name for entry in spot.iterdir()] == [file.name])

    if every_kind or writer in ONLY_FILES:
        victim, link = spot / f"victim{ending}", spot / f"link{ending}"
        victim.write_text(OLD)
        link.symlink_to(victim.name)
        write("link", link, 0)
        expect("link: is no link any more", link.is_symlink())
        expect("link: its file was not written", victim.read_bytes() != OLD.encode())

    if every_kind:
        dangling = spot / f"dangling{ending}"
        dangling.symlink_to("nowhere" + ending)
        write("dangling link", dangling, 1)
        expect("dangling link: was followed", not (spot / ("nowhere" + ending)).exists() and dangling.is_symlink())

    for name, number, code in (("null", 3, 0), ("full", 7, 1))[0 if every_kind else 1:]:
        device = spot / f"{name}{ending}"
        try:
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, number))
            device.open("wb").close()
        except OSError:
            continue  # not root, or a file system without devices
        # If logs of a training cannot be written, it continues after a warning.
        expected = 0 if writer in GOES_ON else code
        write(f"device {name}", device, 1 if writer in ONLY_FILES else expected)
        expect(f"device {name}: is no device any more", stat.S_ISCHR(device.lstat().st_mode))

    pipe = spot / f"pipe{ending}"
    os.mkfifo(pipe)
    if writer in ONLY_FILES:
        write("pipe", pipe, 1)
    else:
        taken = []
        reader = threading.Thread(target=lambda: taken.append(pipe.read_bytes()), daemon=True)
        reader.start()
        write("pipe", pipe, 0)
        reader.join(120)
        expect("pipe: nothing came out", bool(taken and taken[0]))
    expect("pipe: is no pipe any more", stat.S_ISFIFO(pipe.lstat().st_mode))

    if not every_kind:
        return found
    write("folder that is not there", spot / "missing" / f"x{ending}", 1)
    write("folder in which nobody can write", pathlib.Path(f"/proc/self/x{ending}"), 1)
    return found


PRINTERS = {
    "simulate": ("plan", ["rondo-simulate", "profile.json"]),
    "simulate --json -": ("plan", ["rondo-simulate", "profile.json", "--json", "-"]),
    "plan": ("plan", PLAN),
    "plan --json -": ("plan", [*PLAN, "--json", "-"]),
    "report": ("run", ["rondo-report", "."]),
    "report --json -": ("run", ["rondo-report", ".", "--json", "-"]),
    "checkpoint verify": ("checkpoint", ["rondo-checkpoint", "verify", "saved"]),
    "checkpoint inspect --json -": ("checkpoint", ["rondo-checkpoint", "inspect", "saved", "--json", "-"]),
    "doctor": ("plan", ["rondo-doctor"]),
    "doctor --json -": ("plan", ["rondo-doctor", "--json", "-"]),
    "rondo --help": ("plan", ["rondo", "--help"]),
    "rondo plan --help": ("plan", ["rondo", "plan", "--help"]),
    "rondo run": ("plan", ["rondo", "run", "-n", "1", "echo", "hello"]),
    "train": ("trained", TRAIN),
    "train --json -": ("trained", [*TRAIN, "--json", "-"]),
    "evaluate": ("trained", ["rondo-evaluate", "mlp"]),
    "predict": ("trained", ["rondo-predict", "mlp", "--data", "table.csv"]),
    "export": ("trained", ["rondo-export", "mlp", "--output", "model.safetensors"]),
    "tokenize": ("trained", ["rondo-tokenize", "text.txt", "--output", "tokens"]),
    "top --json -": ("trained", ["rondo-top", "mlp", "--json", "-"]),
    "bench-dev codecs": ("plan", CODECS),
    "bench collectives --explain": ("plan", ["rondo-bench", "collectives", "--explain", "ring"]),
    # Programs whose work takes minutes or needs an installed rondo.
    "profile --help": ("plan", ["rondo-profile", "--help"]),
    "new --help": ("plan", ["rondo-new", "--help"]),
}
# Helper programs: children of `rondo-train` and `rondo-doctor`, and a peer of the benchmarks.
NO_PRINTERS = {"rondo-train-worker", "rondo-matmul", "rondo-bench-openmpi"}


def programs_without_a_printer(binaries):
    built = {path.name for path in pathlib.Path(binaries).glob("rondo-*") if path.is_file() and not path.suffix}
    return sorted(built - NO_PRINTERS - {words[0] for _, words in PRINTERS.values()})


def full_disk(place, printer):
    """A full disk behind standard output is a failure with a message."""
    folder, words = PRINTERS[printer]
    home = place.copy_of(folder)
    with open("/dev/full", "wb") as full:
        end = place.run(words, home, stdout=full)
    found = judge.complaints(end, ("cannot write standard output",), 4 * GIB)
    if end.code != 1:
        found.append(f"ended with {end.code}, expected 1: {end.err[-300:]}")
    return found


def deep_json(place):
    """Nests 60,000 levels in every place where JSON is read: lists and objects, in the short run one of them in each place."""
    found = []
    for number, case in enumerate(c for c in place.one_case_of_each_file() if mutations.nest in c.ways):
        if case.target.endswith("model.safetensors"):
            continue
        kinds = (("[", "]"), ('{"a":', "}"))
        for opening, closing in kinds if place.whole else kinds[number % 2:][:1]:
            home = place.folder / f"{number}{len(opening)}"
            target = corpus.copy(place.root, case, home)
            target.write_text(opening * 60_000 + "1" + closing * 60_000)
            if case.sealed and target.name != "manifest.json":
                mutations.reseal(target.parent)
            end = place.run(case.command, home, more=case.environment)
            found += [f"{case.name}: {what}" for what in
                      judge.complaints(end, (target.name, target.parent.name, *case.names), 4 * GIB)]
    return found


def pipes_in_place_of_files(place):
    """Puts a named pipe in place of a file: it must be rejected at once, without waiting."""
    found = []
    for number, case in enumerate(c for c in place.one_case_of_each_file() if not c.sealed):
        home = place.folder / str(number)
        target = corpus.copy(place.root, case, home)
        target.unlink()
        os.mkfifo(target)
        end = place.run(case.command, home, seconds=120, more=case.environment)
        found += [f"{case.name}: {what}" for what in
                  judge.complaints(end, (target.name, target.parent.name, *case.names), 4 * GIB)]
    return found


def impossible_values(place):
    """Writes impossible values under a valid seal."""
    found = []
    for number, step in enumerate(("-9223372036854775808", "-1", "1.5", "1e308", "18446744073709551615", '"7"', "null")):
        home = place.folder / f"step{number}"
        target = corpus.copy(place.root, corpus.Case("checkpoint", "saved/step-00000000/manifest.json", []), home)
        text = target.read_bytes().replace(b'"step": 0', b'"step": ' + step.encode())
        target.write_bytes(mutations.seal(text))
        words = ("verify", "inspect")
        for word in words if place.whole else words[number % 2:][:1]:
            end = place.run(["rondo-checkpoint", word, str(target.parent)], home)
            found += [f"step {step}, {word}: {what}" for what in judge.complaints(end, ("manifest.json",), 4 * GIB)]
            if end.code != 1:
                found.append(f"step {step}, {word}: ended with {end.code}")
    return found


def sealed_garbage(place):
    """A resealed file that is no tensor file is not intact."""
    home = place.folder / "home"
    target = corpus.copy(place.root, corpus.Case("checkpoint", "saved/step-00000000/model.safetensors", []), home)
    content = target.read_bytes()
    target.write_bytes(content.replace(b'"F32"', b'"F33"', 1))
    mutations.reseal(target.parent)
    end = place.run(["rondo-checkpoint", "verify", "saved"], home)
    return judge.complaints(end, ("model.safetensors",), 4 * GIB) + (
        [] if end.code == 1 else [f"verify ended with {end.code}"])


def code_of_weights(place):
    """A TorchScript archive that restores itself by code must be rejected, and none of its code may run."""
    if not (place.root / "archives").exists():
        return []
    home = place.copy_of("archives")
    end = place.run(["rondo-checkpoint", "convert", "hostile.pt", "out.safetensors"], home)
    found = judge.complaints(end, ("hostile.pt",), 4 * GIB)
    if end.code != 1:
        found.append(f"ended with {end.code}")
    return found


def hostile_names(place):
    """Puts control characters into tensor names, metadata and the name of a folder."""
    header = json.dumps({"__metadata__": {"by\x1b[2J": "\x1b[2J"}, "w\x1b[2J\x7f": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
    (place.folder / "hostile.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(4))
    (place.folder / "plain.safetensors").write_bytes(corpus.safetensors({"w": [1.0]}))
    place.copy_of("checkpoint").rename(place.folder / "che\x1b[2Jck")
    found = []
    for words, code, escaped in ((["inspect", "hostile.safetensors"], 0, "\\x1b[2J"),
                                 (["inspect", "hostile.safetensors", "--json", "-"], 0, "\\u001b[2J\\u007f"),
                                 (["diff", "hostile.safetensors", "plain.safetensors"], 1, "\\x1b[2J\\x7f"),
                                 (["verify", "che\x1b[2Jck/saved"], 0, "che\\x1b[2Jck")):
        end = place.run(["rondo-checkpoint", *words], place.folder)
        found += [f"{words[0]}: {what}" for what in judge.complaints(end, ("hostile.safetensors",), 4 * GIB)]
        if end.code != code or escaped not in end.out:
            found.append(f"{words[0]}: ended with {end.code} and {end.out[-300:]}{end.err[-300:]}")
    return found


def hostile_field_on_several_ranks(place):
    """A field of a megabyte with control characters must be escaped, truncated and printed once, for any number of
    ranks."""
    found = []
    for ranks in ("1", "2"):
        home = place.folder / ranks
        corpus.copy(place.root, corpus.Case("data", ".", []), home)
        (home / "table.csv").write_text("a,b,label\n" + "1,2,0\n" * 8 + "1,\x1b[2J" + "x" * (1 << 20) + ",0\n")
        end = place.run(["rondo-train", *corpus.MLP, *corpus.TRAIN, "--nproc-per-node", ranks], home)
        found += [f"{ranks} ranks: {what}" for what in judge.complaints(end, ("table.csv",), 4 * GIB)]
        if end.code != 1 or end.err.count("\\x1b[2J") != 1:
            found.append(f"{ranks} ranks: ended with {end.code}: {end.err[:300]}")
    return found


AGAIN = ["rondo-train", "--run-dir", "mlp", "--resume", "--steps", "3", "--matmul", "libtorch", "--device", "cpu"]


def run_id_that_is_a_path(place):
    """A checkpoint's MLflow run names a folder elsewhere."""
    home = place.folder / "inside" / "home"
    corpus.copy(place.root, corpus.Case("trained", ".", []), home)
    state = home / "mlp" / "checkpoints" / "step-00000002" / "state.json"
    run_id, = [entry.name for entry in (home / "ml" / "0").iterdir() if entry.is_dir()]
    text = state.read_text()
    state.write_text(text.replace(run_id, "../../../elsewhere"))
    mutations.reseal(state.parent)
    end = place.run(AGAIN, home)
    found = judge.complaints(end, ("mlflow_log",), 4 * GIB)
    if run_id not in text or end.code != 1 or "../../../elsewhere" not in end.err:
        found.append(f"ended with {end.code}: {end.err[-300:]}")
    if (place.folder / "inside" / "elsewhere").exists():
        found.append("wrote outside of its folder")
    return found


def step_of_many_digits(place):
    """Adds a foreign line to a log of epochs."""
    home = place.copy_of("trained")
    with (home / "log.csv").open("a") as log:
        log.write("1,99999999999999999999999,0\n")
    end = place.run(AGAIN, home)
    found = judge.complaints(end, ("log.csv",), 4 * GIB)
    if end.code != 0 or "99999999999999999999999" not in (home / "log.csv").read_text():
        found.append(f"ended with {end.code}: {end.err[-300:]}")
    return found


def many_passes(place):
    """Work must be linear in the step; the time limit must hold, and TERM must end the program."""
    home = place.copy_of("plan")
    common = ["--synthetic", "gpt:layers=12,dim=512", "--ranks", "2", "--gradient-accumulation-steps", "1000"]
    pipeline = ["--synthetic", "gpt:layers=12,dim=512", "--strategy", "pipeline", "--stages", "2", "--micro-batches", "1000"]
    planning = ["rondo-plan", *common, "--memory-limit", "4GiB", "--plan-time-limit"]
    found = []
    for words, most in ((["rondo-simulate", *common], 8), (["rondo-simulate", *pipeline], 8), ([*planning, "1s", "--quiet"], 12)):
        before = os.times()
        end = place.run(words, home, seconds=100)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        found += [f"{words[0]}: {what}" for what in judge.complaints(end, ("--",), 4 * GIB)]
        if end.code != 0:
            found.append(f"{words[0]}: ended with {end.code}, so that nothing was computed: {end.err}")
        if used > most:  # processor time, which a busy machine does not lengthen
            found.append(f"{words[0]}: took {used:.1f} s of processor time, expected at most {most}")
    long = ["--synthetic", "gpt:layers=48,dim=1024", "--ranks", "8", "--gradient-accumulation-steps", "100", "--memory-limit", "3GiB", "--gap", "0",
            "--plan-time-limit", "1000s"]
    process = subprocess.Popen([place.binaries / "rondo-plan", *long], cwd=home, env=place.env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    # The first progress message: the program is in the middle of planning.
    if not select.select([process.stderr], [], [], 60)[0]:
        found.append("rondo-plan: said nothing for 60 s")
    if process.poll() is not None:
        found.append(f"rondo-plan: ended with {process.returncode} before it was stopped")
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        found.append("rondo-plan: TERM did not end it within 60 s")
        process.kill()
        process.wait()
    process.stderr.close()
    return found


def many_tensors(place):
    """50,000 tensors in a header and in a checkpoint, 300,000 files in a manifest must take linear time; in the short run
    a fifth of them, in a fifth of the time."""
    share = 1 if place.whole else 5
    entries = {f"layer.{i}.weight": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(50_000 // share)}
    text = json.dumps(entries).encode()
    (place.folder / "many.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4 * len(entries)))
    saved = place.folder / "step-00000000"
    saved.mkdir()
    files = [{"name": f"file{i}", "bytes": 1, "xxh3_128": "0" * 32, "tensors": []} for i in range(300_000 // share)]
    manifest = {"format": "rondo-checkpoint", "version": 1, "step": 0, "files": files, "checksum": "0" * 32}
    (saved / "manifest.json").write_bytes(mutations.seal(json.dumps(manifest, indent=1).encode() + b"\n"))
    target = corpus.copy(place.root, corpus.Case("checkpoint", "saved/step-00000000/model.safetensors", []), place.folder / "home")
    target.write_bytes((place.folder / "many.safetensors").read_bytes())
    sealed = json.loads((target.parent / "manifest.json").read_text())
    record = next(file for file in sealed["files"] if file["name"] == target.name)
    record["tensors"] = []  # the old tensors; without them the file's checksum counts
    record.pop("header_xxh3_128", None)
    (target.parent / "manifest.json").write_text(json.dumps(sealed))
    mutations.reseal(target.parent)
    found = []
    for words, code in ((["inspect", "many.safetensors", "--json", "out.json"], 0), (["convert", "many.safetensors", "x.safetensors"], 0),
                        (["convert", "home/saved", "y.safetensors"], 0), (["verify", "step-00000000", "--json", "out.json"], 1)):
        found += _in_linear_time(place, ["rondo-checkpoint", *words], place.folder, code, LINEAR_SECONDS / share)
    return found


def many_names(place):
    """100,000 names in a plan, in a trace and in the memory of a run must take linear time."""
    planned = place.copy_of("plan")
    plan = json.loads((planned / "plan.json").read_text())
    plan["units"] = [plan["units"][0] | {"name": f"unit.{i}"} for i in range(100_000)]
    (planned / "plan.json").write_text(json.dumps(plan))
    # The units differ from the profile's, which is reported after all of them were read.
    found = _in_linear_time(place, ["rondo-simulate", "profile.json", "--plan", "plan.json"], planned, 1)
    run = place.copy_of("run")
    events = [{"name": "all_gather", "cat": "communication", "ph": "X", "ts": i * 0.001, "dur": 1_000_000, "pid": 0, "tid": 1,
               "args": {"step": 1 + i % 2, "unit": f"unit.{i}", "bytes": 8}} for i in range(100_000)]
    (run / "trace.json").write_text(json.dumps({"traceEvents": events}))
    memory = json.loads((run / "memory.json").read_text())
    memory["ranks"][0]["units"] = [{"name": f"unit.{i}", "categories": {f"category.{i}": 1}} for i in range(100_000)]
    (run / "memory.json").write_text(json.dumps(memory))
    return found + _in_linear_time(place, ["rondo-report", ".", "-o", "page.html", "--json", "out.json"], run, 0)


LINEAR_SECONDS = 20


def _in_linear_time(place, words, cwd, code, most=LINEAR_SECONDS):
    before = os.times()
    end = place.run(words, cwd, seconds=120)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    found = []
    if end.code != code or end.timed_out:
        found.append(f"{words[0]} {words[1]}: ended with {end.code} after {end.seconds:.1f} s: {end.err[-300:]}")
    if used > most:  # processor time, which a busy machine does not lengthen
        found.append(f"{words[0]} {words[1]}: took {used:.1f} s of processor time")
    return found


def all_attacks():
    """Returns all attacks by name."""
    attacks = {f"output {name}": lambda place, name=name: output(place, name) for name in WRITERS}
    attacks |= {f"full disk {name}": lambda place, name=name: full_disk(place, name) for name in PRINTERS}
    for attack in (deep_json, pipes_in_place_of_files, impossible_values, sealed_garbage, code_of_weights, many_passes,
                   many_tensors, many_names, hostile_names, hostile_field_on_several_ranks, run_id_that_is_a_path,
                   step_of_many_digits):
        attacks[attack.__name__.replace("_", " ")] = attack
    return attacks
