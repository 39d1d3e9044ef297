"""Valid inputs of every kind, and how the programs read them."""
import dataclasses
import io
import json
import pathlib
import shutil
import struct
import subprocess
import tarfile

import mutations

TRAIN = ["--steps", "1", "--batch-size", "2", "--nproc-per-node", "1", "--matmul", "default", "--seed", "1"]
GPT = ["--model", "gpt", "--model-config", '{"layers":1,"heads":2,"width":16,"context":8}']


@dataclasses.dataclass
class Case:
    """`command`: the program's name and its words, run in a copy of `folder`; `target` is damaged there."""
    folder: str
    target: str
    command: list
    ways: list = ()
    names: tuple = ()
    sealed: bool = False  # the checkpoint around the target is sealed again
    seconds: float = 20
    torch: bool = False
    variable: str = ""  # the target is this environment variable's value, not a file

    @property
    def name(self):
        return f"{self.command[0]} {self.command[1] if len(self.command) > 1 else ''}: {self.variable or self.target}"


def safetensors(tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _call(binaries, cwd, *words):
    result = subprocess.run([binaries / words[0], *words[1:]], cwd=cwd, capture_output=True, text=True, timeout=300)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {result.stderr}")


def _run_directory(run):
    run.mkdir()
    rows = [{"rank": r, "step": s, "epoch": 0, "elapsed_s": s * 0.1, "loss": 3.0 / s, "learning_rate": 0.1,
             "step_ms": 10.5, "peak_bytes": 1 << 20} for s in range(1, 9) for r in range(2)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "config.json").write_text(json.dumps({"model": "gpt", "steps": 8, "strategy": "ddp", "model_config": {"layers": 2}}))
    events = [{"name": "forward", "ph": "X", "pid": r, "tid": 0, "ts": s * 1e4, "dur": 5e3,
               "args": {"step": s, "bytes": 10, "queued_ms": 0.5}} for s in range(1, 5) for r in range(2)]
    events += [{"name": "memory", "ph": "C", "pid": 0, "ts": 1e4, "args": {"step": 2, "activations": 100}}]
    (run / "trace.json").write_text('{"displayTimeUnit":"ms","traceEvents":[\n' + ",\n".join(map(json.dumps, events)) + "\n]}\n")
    (run / "memory.json").write_text(json.dumps({"ranks": [{
        "rank": 0, "peak_bytes": 100, "step": 2, "phase": "forward", "unit": "head",
        "units": [{"name": "head", "categories": {"activations": 60, "parameters": 40}}]}]}))
    side = {"step_ms": 10.0, "exposed_comm_ms": 1.0, "peak_bytes": 1000}
    (run / "prediction.json").write_text(json.dumps({"predicted": side, "measured": side, "units": []}))


def _data(folder):
    folder.mkdir()
    (folder / "table.csv").write_text("a,b,label\n" + "".join(f"{i},{i * 0.5},{i % 2}\n" for i in range(16)))
    images, labels = folder / "idx", folder / "cifar"
    images.mkdir()
    labels.mkdir()
    pixels = bytes(range(256)) * 4 * 16 * 28 * 28
    (images / "train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, 16, 28, 28) + pixels[:16 * 784])
    (images / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 16) + bytes(i % 10 for i in range(16)))
    (labels / "data_batch_1.bin").write_bytes(b"".join(bytes([i % 10]) + pixels[:3072] for i in range(10)))
    (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 40)
    (folder / "flags.json").write_text(json.dumps({"model": "mlp", "steps": 1, "batch_size": 2, "lr": 0.01, "seed": 3}))
    (folder / "model.json").write_text(json.dumps({"layers": 1, "heads": 2, "width": 16, "context": 8}))
    (folder / "reviews.tsv").write_text("".join(f"{i % 2}\tthe good film {i}\n" for i in range(16)))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "good", "film"] + list("0123456789abcdefg")
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    shards, archives = folder / "tokens", folder / "shards"
    shards.mkdir()
    (shards / "shard_00000.bin").write_bytes(bytes(i % 50 * (i % 2) for i in range(2048)))
    (shards / "tokens.json").write_text(json.dumps(
        {"format": "rondo tokens", "version": 1, "type": "uint16", "vocabulary": 12800, "end_of_document": None, "tokenizer": "x",
         "documents": 1, "shards": [{"file": "shard_00000.bin", "tokens": 1024}]}))
    images_of = json.loads((pathlib.Path(__file__).resolve().parents[1] / "data" / "image_reference.json").read_text())["images"]
    archives.mkdir()
    with tarfile.open(archives / "a.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for i in range(16):
            for name, data in ((f"{i}.jpg", bytes.fromhex(images_of[i % 5]["file"])), (f"{i}.cls", str(i % 2).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    (folder / "tokenizer.json").write_text(json.dumps(
        {"model": {"type": "WordPiece", "vocab": {word: i for i, word in enumerate(words)}}}))


def _archives(folder):
    """Archives of PyTorch; nothing where its Python package is not there."""
    try:
        import torch
    except ImportError:
        return False
    folder.mkdir()
    import archives
    torch.save({"weight": torch.ones(2, 3), "bias": torch.zeros(3)}, folder / "dict.pt")
    archives.save_script(folder / "script.pt")
    archives.save_hostile(folder / "hostile.pt")
    return True


def make(root, binaries):
    """Writes the inputs below `root` and returns the cases."""
    plan = root / "plan"
    plan.mkdir(parents=True)
    _call(binaries, plan, "rondo-plan", "--synthetic", "gpt:layers=3,dim=64", "--ranks", "2", "--memory-limit", "64MiB",
          "--quiet", "--write-profile", "profile.json", "--plan-out", "plan.json", "--json", "full.json", "--time-limit", "5s")
    _run_directory(root / "run")
    _data(root / "data")
    checkpoint = root / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(safetensors({f"layer.{i}.weight": [1.0, 2.0] for i in range(8)}))
    _call(binaries, checkpoint, "rondo-checkpoint", "convert", "model.safetensors", "saved")
    has_archives = _archives(root / "archives")
    saved = "saved/step-00000000"
    step = ("step-00000000", "saved")
    limits = ("--memory-limit", "limit")
    cases = [
        Case("plan", "profile.json", ["rondo-plan", "profile.json", "--memory-limit", "64MiB", "--quiet", "--json", "out.json",
                                      "--time-limit", "0.3s"], mutations.JSON, limits),
        Case("plan", "profile.json", ["rondo-simulate", "profile.json", "--json", "out.json"], mutations.JSON),
        Case("plan", "plan.json", ["rondo-simulate", "profile.json", "--plan", "plan.json"], mutations.JSON),
        *[Case("run", name, ["rondo-report", ".", "-o", "page.html", "--json", "-"], mutations.JSON, ("RUN_DIR",))
          for name in ("metrics.jsonl", "config.json", "trace.json", "memory.json", "prediction.json")],
        *[Case("checkpoint", f"{saved}/{name}", ["rondo-checkpoint", word, "saved"], mutations.JSON, step, torch=True)
          for word in ("verify", "inspect") for name in ("manifest.json", "state.json", "model.safetensors")],
        *[Case("checkpoint", f"{saved}/{name}", ["rondo-checkpoint", word, "saved"], mutations.JSON, step, sealed=True, torch=True)
          for word in ("verify", "inspect") for name in ("manifest.json", "state.json", "model.safetensors")],
        Case("checkpoint", f"{saved}/model.safetensors", ["rondo-checkpoint", "convert", "saved", "out.safetensors"],
             mutations.JSON, step, sealed=True, torch=True),
        Case("checkpoint", "model.safetensors", ["rondo-checkpoint", "inspect", "model.safetensors"], mutations.JSON, torch=True),
        Case("checkpoint", "model.safetensors", ["rondo-checkpoint", "diff", "model.safetensors", "saved"], mutations.BINARY,
             torch=True),
    ]
    if has_archives:
        cases += [Case("archives", name, ["rondo-checkpoint", "convert", name, "out.safetensors"], mutations.BINARY, torch=True)
                  for name in ("dict.pt", "script.pt")]

    def train(target, words, ways, names=()):
        return Case("data", target, ["rondo-train", *words, *TRAIN, "--run-dir", "out"], ways, names, torch=True, seconds=60)

    if (binaries / "rondo-train-worker").exists():
        cases += [
            train("table.csv", ["--model", "mlp", "--data", "table.csv", "--data-kind", "csv", "--label-column", "label"],
                  mutations.TEXT, ("batch", "classes", "label")),
            train("idx/train-images-idx3-ubyte", ["--model", "mlp", "--data", "idx"], mutations.BINARY, ("idx",)),
            train("idx/train-labels-idx1-ubyte", ["--model", "mlp", "--data", "idx"], mutations.BINARY, ("idx", "class")),
            train("cifar/data_batch_1.bin", ["--model", "convnet", "--data", "cifar"], mutations.BINARY, ("cifar",)),
            train("tokens/tokens.json", [*GPT, "--data", "tokens"], mutations.JSON, ("tokens.json", "context", "shard", "token")),
            train("shards/a.tar", ["--model", "mlp", "--data", "shards", "--image-size", "8"], mutations.BINARY, ("a.tar", "batch")),
            train("text.txt", [*GPT, "--data", "text.txt"], mutations.BINARY, ("context", "batch")),
            train("flags.json", ["--config", "flags.json", "--data", "table.csv"], mutations.JSON, ("--", "table.csv", "batch")),
            train("model.json", [*GPT[:2], "--model-config", "model.json", "--data", "text.txt"], mutations.JSON,
                  ("--model-config", "config", "heads", "width", "context", "layers", "GPT", "gpt")),
            train("vocab.txt", ["--model", "bert", "--task", "classify", "--data", "reviews.tsv", "--vocabulary", "vocab.txt",
                                "--layers", "1", "--heads", "2", "--width", "16"], mutations.TEXT, ("vocab",)),
            train("tokenizer.json", ["--model", "bert", "--task", "classify", "--data", "reviews.tsv", "--vocabulary",
                                     "tokenizer.json", "--layers", "1", "--heads", "2", "--width", "16"], mutations.JSON),
        ]
    cluster = json.dumps({"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}})
    for variable, text in (("TF_CONFIG", cluster), ("SLURM_JOB_NODELIST", "n[1-3,7],m[01-02]"), ("WORLD_SIZE", "2"),
                           ("OMPI_COMM_WORLD_SIZE", "2"), ("PBS_NODEFILE", "data"), ("LSB_MCPU_HOSTS", "a 2 b 2")):
        cases.append(Case("data", text, ["rondo-train", "--data", "missing.txt", *TRAIN], mutations.JSON,
                          ("environment", "missing", variable, "rank", "RANK", "SLURM"), variable=variable, torch=True))
    return cases


def copy(root, case, to):
    shutil.copytree(root / case.folder, to, symlinks=True)
    return to / case.target


