"""Valid inputs of every kind, and the commands that read them."""
import dataclasses
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tarfile

import mutations

TRAIN = ["--steps", "1", "--batch-size", "2", "--nproc-per-node", "1", "--matmul", "libtorch", "--seed", "1"]
CONFIG = '{"layers":1,"heads":2,"width":16,"context":8}'
GPT = ["--model", "gpt", "--model-config", CONFIG]
BERT = ["--model", "bert", "--task", "classify", "--layers", "1", "--heads", "2", "--width", "16"]
MLP = ["--model", "mlp", "--data", "table.csv", "--data-kind", "csv", "--label-column", "label"]
LOGS = ["--log-to", "tensorboard,mlflow,csv,jsonl", "--set", "mlflow-dir=ml", "--set", "csv-file=log.csv", "--set", "jsonl-file=log.jsonl"]


@dataclasses.dataclass
class Case:
    """A command that reads an input. `command`: the program's name and its words, run in a copy of `folder`; `target`
    is damaged there."""
    folder: str
    target: str  # a file name, possibly with *
    command: list
    ways: list = ()
    names: tuple = ()
    sealed: bool = False  # the checkpoint around the target is resealed
    seconds: float = 20
    torch: bool = False
    variable: str = ""  # the target is this environment variable's value, not a file
    word: bool = False  # the target is a word of the command, not a file
    environment: dict = dataclasses.field(default_factory=dict)
    reads: str = ""  # source files that read the target, without .cpp; mutate_test.py requires all of them

    @property
    def is_file(self):
        return not self.variable and not self.word

    @property
    def name(self):
        what = self.variable or (f"word {self.target[:40]}" if self.word else self.target)
        return f"{self.command[0]} {self.command[1] if len(self.command) > 1 else ''}: {what}"


def safetensors(tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _call(binaries, cwd, *words):
    # Measurements are stored and searched below `cwd`, not in the user's home.
    env = os.environ | {"HOME": str(cwd), "XDG_CACHE_HOME": str(cwd), "RONDO_MATMUL": "libtorch", "OMP_NUM_THREADS": "1"}
    result = subprocess.run([binaries / words[0], *words[1:]], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
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
    start = {"program": "rondo train", "version": "0.2.0", "time": "2026-01-02T03:04:05Z", "host": "h", "command": "rondo train",
             "strategy": "ddp", "backend": "native", "ranks": 2, "first_step": 0, "total_steps": 8}
    (run / "run.json").write_text(json.dumps({"starts": [start, start | {"first_step": 4}]}))


def _byte_pairs():
    """Returns a tokenizer.json of byte pairs: every byte as a character, as GPT-2 writes them, and two merges."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(code) for code in shown] + [chr(256 + i) for i in range(256 - len(shown))]
    vocabulary = {token: i for i, token in enumerate([*letters, "th", "the", "<|endoftext|>"])}
    return {"version": "1.0", "added_tokens": [{"id": 258, "content": "<|endoftext|>", "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": ["t h", ["th", "e"]]}}


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
    (folder / "flags.toml").write_text(
        '# a training\nmodel = "mlp"\nsteps = 1\nbatch-size = 2\nlr = 1e-2\nfreeze = []\n[validation]\nfraction = 0.25\n'
        '[model_config]\nhidden = [8]\n')
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
    (folder / "byte_pairs.json").write_text(json.dumps(_byte_pairs()))
    (folder / "pages.jsonl").write_text("".join(json.dumps({"text": f"the quick fox {i}"}) + "\n" for i in range(20)))
    (folder / "lines.csv").write_text("".join(f"{i},{i * 0.5},{i % 2}\n" for i in range(16)))
    for i in range(8):
        (folder / "pictures" / f"kind{i % 2}").mkdir(parents=True, exist_ok=True)
        (folder / "pictures" / f"kind{i % 2}" / f"{i}.jpg").write_bytes(bytes.fromhex(images_of[i % 5]["file"]))


def _archives(folder):
    """Writes archives of PyTorch, if its Python package is installed."""
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


def _trained(folder, binaries, data):
    """Trains runs with each kind of model and checkpoint, and writes folders of other projects' models, a profile and a
    plan of this machine."""
    folder.mkdir()
    for name in ("table.csv", "text.txt", "reviews.tsv", "vocab.txt", "byte_pairs.json"):
        shutil.copy(data / name, folder / name)
    (folder / "byte_pairs.json").rename(folder / "tokenizer.json")

    def train(run, *words):
        _call(binaries, folder, "rondo-train", "--batch-size", "2", "--steps", "2", "--matmul", "libtorch", "--seed", "1", "--run-dir",
              run, *words)

    train("mlp", *MLP, *LOGS, "--checkpoint-every", "1", "--set", "checkpoint-incremental=true")
    train("gpt", *GPT[:2], "--model-config", CONFIG, "--data", "text.txt", "--tokenizer", "tokenizer.json")
    train("bert", *BERT, "--data", "reviews.tsv", "--vocabulary", "vocab.txt")
    train("parts", *MLP, "--nproc-per-node", "2", "--strategy", "zero3", "--checkpoint-sharded")
    train("codec", *MLP, "--nproc-per-node", "2", "--codec", "top_k:0.1")
    _call(binaries, folder, "rondo-export", "mlp", "-o", "net.pt")
    for kind in ("gpt", "bert"):
        _call(binaries, folder, "rondo-export", kind, "-o", f"{kind}_folder", "--format", "huggingface")
    _call(binaries, folder, "rondo-profile", *GPT[:2], "--model-config", CONFIG, "--passes", "1", "--largest", "16KiB", "--batch-size",
          "1", "--json", "profile.json")
    for plan, words in (("plan.json", []), ("mesh.json", ["--mesh", "pipeline=2"])):
        _call(binaries, folder, "rondo-plan", "profile.json", "--memory-limit", "1GiB", "--quiet", "--plan-time-limit", "1s", "--plan-out",
              plan, *words)
    figures = {"gflops": 90.0, "error": 2e-7}
    (folder / "matmul.json").write_text(json.dumps({"format": "rondo-matmul-1", "measurements": [
        {"machine": "another", "library": "/lib.so, 1 bytes, 2", "default": figures, "fast": figures}]}))
    (folder / "mlp" / "run.lock").write_text("process 1 on host h\n")
    (folder / "error.json").write_text(json.dumps({"message": {"message": "it failed", "extraInfo": {"timestamp": "1"}}}))


def _trained_cases():
    """Returns cases that read a run directory, or files that programs have written for each other."""
    step = "checkpoints/step-00000002"
    sealed = ("step-00000002", "checkpoint", "--run-dir")
    again = ["--resume", "--steps", "3", "--matmul", "libtorch", "--device", "cpu"]

    def case(target, words, reads, ways=mutations.JSON, names=(), **more):
        on_libtorch = words[0] not in ("rondo", "rondo-simulate")
        return Case("trained", target, words, ways, names, torch=on_libtorch, seconds=60, reads=reads, **more)

    def resume(run, target, reads, names=(), **more):
        return case(f"{run}/{target}", ["rondo-train", "--run-dir", run, *again], reads, names=(*sealed, *names), **more)

    def use(target, reads, more_names=(), **more):
        """Returns a case for every program that uses a trained run."""
        return [case(f"mlp/{target}", words, reads, names=(*sealed, "mlp", *more_names), **more) for words in (
            ["rondo-evaluate", "mlp", "--data", "table.csv"], ["rondo-predict", "mlp", "--data", "table.csv"],
            ["rondo-export", "mlp", "-o", "out.pt"])]

    checkpoint = "format/checkpoint_directory format/checkpoint_files format/safetensors format/file checkpoint/checkpoint"
    planned = ["rondo-train", *GPT[:2], "--model-config", CONFIG, "--data", "text.txt", "--batch-size", "1", "--steps", "1",
               "--nproc-per-node", "2", "--matmul", "libtorch", "--strategy", "planned", "--run-dir", "out"]
    trains = ["rondo-train", *TRAIN, "--run-dir", "out"]
    worker = ["rondo-train-worker", *MLP, "--steps", "1", "--batch-size", "2", "--run-dir", "out"]
    return [
        *[resume("mlp", f"{step}/{name}", checkpoint, sealed=True)
          for name in ("manifest.json", "state.json", "model.safetensors", "optimizer.safetensors", "random.safetensors")],
        *[resume("mlp", f"{step}/{name}", checkpoint) for name in ("manifest.json", "state.json", "optimizer.safetensors")],
        *[resume(run, f"{step}/{name}", "checkpoint/tensor_file", sealed=True)
          for run, name in (("codec", "communication.safetensors"), ("parts", "model-00001-of-00002.safetensors"))],
        resume("mlp", "config.json", "options/config_file apps/train/run_folder", ("--", "mlp")),
        resume("mlp", "data.json", "apps/train/trained_run"),
        resume("mlp", "run.json", "format/run_directory"),
        resume("mlp", "metrics.jsonl", "format/metrics", ("metrics",)),
        resume("mlp", "trace.json", "format/trace"),
        resume("mlp", "run.lock", "", ("run directory",)),
        case("log.csv", ["rondo-train", "--run-dir", "mlp", *again], "train/callbacks/epoch_rows", mutations.TEXT),
        case("log.jsonl", ["rondo-train", "--run-dir", "mlp", *again], "train/callbacks/epoch_rows train/log_targets/jsonl/json_log"),
        case("ml/0/*/meta.yaml", ["rondo-train", "--run-dir", "mlp", *again], "format/metrics_export", mutations.TEXT, ("ml/",)),
        case("ml/0/*/metrics/loss", ["rondo-train", "--run-dir", "mlp", *again], "format/metrics_export", mutations.TEXT, ("ml/",)),
        *use("data.json", "apps/train/trained_run"),
        *use("config.json", "options/config_file", more_names=("--",)),
        *use(f"{step}/state.json", checkpoint, sealed=True),
        *use(f"{step}/model.safetensors", checkpoint, sealed=True),
        case("table.csv", ["rondo-evaluate", "mlp", "--data", "table.csv"], "data/csv", mutations.TEXT, ("batch", "label")),
        case("table.csv", ["rondo-predict", "mlp", "--data", "table.csv", "--format", "jsonl"], "data/csv", mutations.TEXT,
             ("batch", "label")),
        case("mlp/config.json", [*trains, "--config", "mlp/config.json"], "options/config_file", names=("--",)),
        *[case(f"parts/{step}/{name}", ["rondo-checkpoint", *words], "checkpoint/tensor_file", names=sealed, sealed=True)
          for words in (["reshard", "parts", "out", "--parts", "3"], ["merge", "parts", "out"])
          for name in ("manifest.json", "model-00002-of-00002.safetensors", "optimizer-00001-of-00002.safetensors")],
        *[case(f"gpt_folder/{name}", [*trains, *GPT[:2], "--data", "text.txt", "--tokenizer", "tokenizer.json", "--from-pretrained", "gpt_folder"],
               "models/gpt checkpoint/pretrained", names=("gpt_folder", "--from-pretrained")) for name in ("config.json", "model.safetensors")],
        *[case(f"bert_folder/{name}", [*trains, *BERT, "--data", "reviews.tsv", "--from-pretrained", "bert_folder"], "models/bert",
               names=("bert_folder", "--from-pretrained", "vocab")) for name in ("config.json", "model.safetensors", "vocab.txt",
                                                                      "tokenizer_config.json")],
        *[case(target, ["rondo-export", run, "-o", "out", "--format", "huggingface"], "apps/export/main", names=("out",))
          for run, target in (("gpt", "tokenizer.json"), ("bert", "vocab.txt"), ("gpt", "gpt/config.json"))],
        case("tokenizer.json", [*trains, *GPT, "--data", "text.txt", "--tokenizer", "tokenizer.json"], "data/byte_pairs_file"),
        case(f"mlp/{step}/model.safetensors", [*trains, *MLP, "--init-from", f"mlp/{step}/model.safetensors"],
             "format/safetensors", names=("--init-from",)),
        case("net.pt", [*trains, "--model", "net.pt", *MLP[2:]], "models/model_file models/script", mutations.BINARY),
        case("net.pt", ["rondo-profile", "--model", "net.pt", "--model-config", '{"input_shape":[2],"classes":2}', "--passes", "1",
                        "--largest", "16KiB", "--json", "out.json"], "models/model_file models/script", mutations.BINARY),
        case("profile.json", [*planned, "--plan", "plan.json", "--profile", "profile.json"],
             "cost/profile_json apps/train/planned_training", names=("plan", "--")),
        case("plan.json", [*planned, "--plan", "plan.json"], "cost/step_plan parallel/sharded/sharded_strategy", names=("plan", "--")),
        case("mesh.json", [*planned, "--plan", "mesh.json", "--batch-size", "2"], "cost/step_plan", names=("plan", "--")),
        case("profile.json", ["rondo-simulate", "profile.json"], "cost/profile_json"),
        case("matmul.json", worker, "kernels/matmul_choice",
             environment={"RONDO_MATMUL_MEASUREMENTS": "matmul.json", "RONDO_MATMUL": "auto"}),
        case("error.json", ["rondo", "run", "-n", "1", "sh", "-c", 'mv error.json "$TORCHELASTIC_ERROR_FILE"; exit 1'],
             "launch/failure", names=("rank 0",)),
    ]


def _libtorch(folder):
    """Writes a header with libtorch's version, beside an invalid library."""
    header, library = folder / "include/torch/headeronly/version.h", folder / "lib/libtorch_cpu.so"
    for file in (header, library):
        file.parent.mkdir(parents=True)
        file.touch()
    header.write_text("".join(f"#define TORCH_VERSION_{part} {i + 2}\n" for i, part in enumerate(("MAJOR", "MINOR", "PATCH"))))


def make(root, binaries):
    """Writes the inputs below `root` and returns the cases."""
    plan = root / "plan"
    plan.mkdir(parents=True)
    _call(binaries, plan, "rondo-plan", "--synthetic", "gpt:layers=3,dim=64", "--ranks", "2", "--memory-limit", "64MiB",
          "--quiet", "--write-profile", "profile.json", "--plan-out", "plan.json", "--json", "full.json", "--plan-time-limit", "5s")
    _run_directory(root / "run")
    _data(root / "data")
    checkpoint = root / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(safetensors({f"layer.{i}.weight": [1.0, 2.0] for i in range(8)}))
    _call(binaries, checkpoint, "rondo-checkpoint", "convert", "model.safetensors", "saved")
    _archives(root / "archives")
    _libtorch(root / "libtorch")
    if (binaries / "rondo-train-worker").exists():
        _trained(root / "trained", binaries, root / "data")
    return cases(root)


def _data_cases():
    """Returns cases of training data and its options."""
    def train(target, words, ways, names, reads, ranks="1"):
        return Case("data", target, ["rondo-train", *words, *TRAIN, "--nproc-per-node", ranks, "--run-dir", "out"], ways, names, torch=True,
                    seconds=60, reads=reads)

    def tokenize(target, ways, reads, *words):
        return Case("data", target, ["rondo-tokenize", "-o", "out", *words], ways, ("--documents", "--field"), torch=True, reads=reads)

    def table(name, *words, **more):
        return train(name, ["--model", "mlp", "--data", name, "--data-kind", "csv", *words], mutations.TEXT, ("batch", "classes", "label"),
                     "data/csv data/data_files", **more)

    mlp = ["--model", "mlp", "--data"]
    images = "data/image_files data/open"
    return [
        table("table.csv", "--label-column", "label"),
        table("table.csv", "--label-column", "label", ranks="2"),
        table("lines.csv"),
        train("idx/train-images-idx3-ubyte", [*mlp, "idx"], mutations.BINARY, ("idx",), "data/images data/open"),
        train("idx/train-labels-idx1-ubyte", [*mlp, "idx"], mutations.BINARY, ("idx", "class"), "data/images"),
        train("cifar/data_batch_1.bin", ["--model", "convnet", "--data", "cifar"], mutations.BINARY, ("cifar",), "data/images"),
        train("tokens/tokens.json", [*GPT, "--data", "tokens"], mutations.JSON, ("tokens.json", "context", "shard", "token"),
              "data/tokens"),
        train("tokens/shard_00000.bin", [*GPT, "--data", "tokens"], mutations.BINARY, ("tokens", "context"), "data/tokens"),
        train("shards/a.tar", [*mlp, "shards", "--image-size", "8"], mutations.BINARY, ("a.tar", "batch"), "data/web_dataset"),
        train("pictures/kind1/3.jpg", [*mlp, "pictures", "--image-size", "8"], mutations.BINARY, ("pictures", "batch"), images),
        train("pictures/kind1/3.jpg", [*mlp, "pictures", "--image-size", "8", "--set", "corrupt-images=skip"], mutations.BINARY,
              ("pictures", "batch"), images),
        train("text.txt", [*GPT, "--data", "text.txt"], mutations.BINARY, ("context", "batch"), "data/text"),
        train("reviews.tsv", [*BERT, "--data", "reviews.tsv", "--vocabulary", "vocab.txt"], mutations.TEXT,
              ("batch", "class", "label", "reviews"), "data/bert_text"),
        train("text.txt", ["--model", "bert", "--task", "mlm", *BERT[4:], "--data", "text.txt", "--vocabulary", "vocab.txt"], mutations.TEXT,
              ("context", "batch", "token", "text"), "data/bert_text"),
        train("flags.json", ["--config", "flags.json", "--data", "table.csv"], mutations.JSON, ("--", "table.csv", "batch"),
              "options/config_file"),
        train("flags.toml", ["--config", "flags.toml", "--data", "table.csv"], mutations.TEXT, ("--", "flags.toml", "table.csv", "batch"),
              "options/config_file"),
        train("model.json", [*GPT[:2], "--model-config", "model.json", "--data", "text.txt"], mutations.JSON,
              ("--model-config", "config", "heads", "width", "context", "layers", "GPT", "gpt"), "apps/train/job apps/common/command_line"),
        train("vocab.txt", [*BERT, "--data", "reviews.tsv", "--vocabulary", "vocab.txt"], mutations.TEXT, ("vocab",), "data/word_piece"),
        train("tokenizer.json", [*BERT, "--data", "reviews.tsv", "--vocabulary", "tokenizer.json"], mutations.JSON, (), "data/word_piece"),
        tokenize("byte_pairs.json", mutations.JSON, "data/byte_pairs_file", "text.txt", "--tokenizer", "byte_pairs.json"),
        tokenize("pages.jsonl", mutations.JSON, "apps/tokenize/shards", "pages.jsonl", "--documents", "jsonl"),
        tokenize("text.txt", mutations.TEXT, "apps/tokenize/shards", "text.txt", "--documents", "lines"),
    ]


# Programs and source files that need no case, with reasons. mutate_test.py fails for any other without a case.
OTHER_PROGRAMS = {
    "rondo-bench": "reads plans (--variant) through the strategy, as a training does",
    "rondo-matmul": "measures for other programs and reads nothing",
    "rondo-bench-openmpi": "Open MPI's side of rondo bench, which starts it and hears it",
}
_TOLD = "what processes of one job or bench tell each other"
_SYSTEM = "files of the system"
_TOOLS = "what the cases of every file go through"
OTHER_READERS = {
    **dict.fromkeys(("apps/bench/checkpoint", "apps/bench/dev/loader", "apps/bench/dev/plan_worker", "apps/bench/dev/startup",
                     "apps/bench/dev/strategies", "apps/bench/harness/processes", "apps/bench/harness/rank", "apps/matmul/main", "apps/train/launch",
                     "backend/engine/failure_record", "backend/rendezvous", "backend/native/scheduled_collectives",
                     "device/device_choice", "launch/spawn", "train/parts_saver", "train/trainer"), _TOLD),
    **dict.fromkeys(("apps/doctor/machine_checks", "channel/shared_memory", "launch/host_resources", "launch/network"), _SYSTEM),
    **dict.fromkeys(("base/json_strict", "base/file_access"), _TOOLS),
    "apps/rondo/completion_command": "help that rondo's own programs print",
    "format/run_progress": "a file of the run that rondo top reads, which tests/integration/top_test.py damages",
    "format/git_commit": "files of git, which tests/format/git_commit_test.cpp damages",
    "format/otlp": "responses of a collector, which tests/format/otlp_test.cpp damages",
}


def _word_cases(with_training):
    """Returns cases of command-line words, and of variables that launchers and users set."""
    def word(target, command, names=(), ways=mutations.TEXT, folder="plan", **more):
        return Case(folder, target, command, ways, ("--", *names), word=True, **more)

    profile = ["rondo-profile", *GPT[:2], "--model-config", CONFIG, "--passes", "1", "--largest", "16KiB", "--json", "out.json"]
    cluster = json.dumps({"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}})
    servers = json.dumps({"cluster": {"chief": ["localhost:1"], "ps": ["localhost:2"]}, "task": {"type": "ps", "index": 0}})
    variables = (("TF_CONFIG", cluster), ("TF_CONFIG", servers), ("SLURM_JOB_NODELIST", "n[1-3,7],m[01-02]"), ("WORLD_SIZE", "2"),
                 ("OMPI_COMM_WORLD_SIZE", "2"), ("PBS_NODEFILE", "data"), ("LSB_MCPU_HOSTS", "a 2 b 2"))
    return [
        word("project", ["rondo-new", "project"], ("NAME", "installed rondo")),
        word("gpt:layers=3,dim=64", ["rondo-simulate", "--synthetic", "gpt:layers=3,dim=64"]),
        word("64MiB", ["rondo-plan", "profile.json", "--memory-limit", "64MiB", "--quiet", "--plan-time-limit", "0.2s"], ("profile.json",)),
        word("hello", ["rondo", "run", "-n", "1", "echo", "hello"]),
        word("1s", ["rondo-top", ".", "--once", "--interval", "1s"], folder="run"),
        *([
            word("top_k:0.1,int8", ["rondo-bench-dev", "codecs", "--codec", "top_k:0.1,int8", "--size", "1KiB", "--runs", "1"], ("codec",), torch=True),
            word(CONFIG, profile, ("heads", "width", "context", "layers", "gpt", "GPT"), mutations.JSON, torch=True, seconds=60,
                 reads="apps/profile/main apps/common/command_line"),
        ] if with_training else []),
        *[Case("data", text, ["rondo-train", "--data", "missing.txt", *TRAIN], mutations.JSON,
               ("environment", "missing", variable, "rank", "RANK", "SLURM"), variable=variable, torch=True,
               reads="env/sources/tf_config" if variable == "TF_CONFIG" else "") for variable, text in variables],
    ]


def cases(root):
    """Returns all cases for the inputs that make() wrote below `root`."""
    saved = "saved/step-00000000"
    step = ("step-00000000", "saved")
    limits = ("--memory-limit", "limit")
    files = ("manifest.json", "state.json", "model.safetensors")
    found = [
        Case("plan", "profile.json", ["rondo-plan", "profile.json", "--memory-limit", "64MiB", "--quiet", "--json", "out.json",
                                      "--plan-time-limit", "0.3s"], mutations.JSON, limits, reads="cost/profile_json"),
        Case("plan", "profile.json", ["rondo-simulate", "profile.json", "--json", "out.json"], mutations.JSON, reads="cost/profile_json"),
        Case("plan", "plan.json", ["rondo-simulate", "profile.json", "--plan", "plan.json"], mutations.JSON, reads="apps/simulate/main"),
        *[Case("run", name, ["rondo-report", ".", "-o", "page.html", "--json", "-"], mutations.JSON, ("RUN_DIR",), reads=reads)
          for name, reads in (("metrics.jsonl", "format/metrics"), ("config.json", "format/report/run_data"), ("trace.json", "format/trace"),
                              ("memory.json", "format/report/run_data"), ("prediction.json", "format/report/run_data"),
                              ("run.json", "format/run_directory"))],
        *[Case("run", name, ["rondo-top", ".", "--once", "--json", "-"], mutations.JSON, ("RUN_DIR",), reads=reads)
          for name, reads in (("metrics.jsonl", "format/metrics"), ("run.json", "format/run_directory"))],
        *[Case("checkpoint", f"{saved}/{name}", ["rondo-checkpoint", word, "saved"], mutations.JSON, step, torch=True, sealed=sealed,
               reads="format/checkpoint_directory format/checkpoint_files apps/checkpoint/inspect")
          for sealed in (False, True) for word in ("verify", "inspect") for name in files],
        Case("checkpoint", f"{saved}/model.safetensors", ["rondo-checkpoint", "convert", "saved", "out.safetensors"],
             mutations.JSON, step, sealed=True, torch=True, reads="format/safetensors"),
        Case("checkpoint", "model.safetensors", ["rondo-checkpoint", "inspect", "model.safetensors"], mutations.JSON, torch=True,
             reads="format/safetensors apps/checkpoint/inspect"),
        Case("checkpoint", "model.safetensors", ["rondo-checkpoint", "diff", "model.safetensors", "saved"], mutations.BINARY,
             torch=True, reads="format/safetensors"),
        Case("libtorch", "include/torch/headeronly/version.h", ["rondo-doctor", "--libtorch", "."], mutations.TEXT,
             ("libtorch",), reads="apps/common/libtorch_location"),
    ]
    if (root / "archives").exists():
        found += [Case("archives", name, ["rondo-checkpoint", "convert", name, "out.safetensors"], mutations.BINARY, torch=True,
                       reads="checkpoint/weights") for name in ("dict.pt", "script.pt")]
    with_training = (root / "trained").exists()
    if with_training:
        found += _data_cases() + _trained_cases()
    return found + _word_cases(with_training)


def copy(root, case, to):
    """Copies the case's folder; returns the file to damage, or None if the target is no file."""
    shutil.copytree(root / case.folder, to, symlinks=True)
    if not case.is_file:
        return None
    return next(to.glob(case.target)) if "*" in case.target else to / case.target


