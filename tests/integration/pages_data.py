"""The small files that commands of the documentation read, under the names that the pages use: provide() makes those
that a page mentions."""
import json
import os
import random
import re
import shutil
import struct
import subprocess

VOCABULARY = ("[PAD] [UNK] [CLS] [SEP] [MASK] the a film book was is good bad fine poor slow great dull story long with "
              "and play actor scene ending . ,").split()
SENTENCES = ["A {} film with a {} story.", "The book is {}, and the ending {}.", "This scene was {}; the actor is {}.",
             "The play was long, {} and {}."]
GOOD, BAD = ["good", "fine", "great"], ["bad", "poor", "slow", "dull"]


def sentences(seed, count):
    source = random.Random(seed)
    return [source.choice(SENTENCES).format(source.choice(GOOD + BAD), source.choice(GOOD + BAD)) for _ in range(count)]


def text_file(path, seed=1, count=300):
    path.write_text("\n".join(sentences(seed, count)) + "\n")


def texts(path):
    path.mkdir(parents=True)
    for seed in range(3):
        text_file(path / f"text{seed}.txt", seed, 150)


def table(path, header, row, count, seed=1):
    source = random.Random(seed)
    path.write_text("\n".join([header, *(row(source) for _ in range(count))]) + "\n")


def points(path):
    """Points in the plane around three centres."""

    def row(source):
        kind, x, y = source.choice([("ant", 0, 3), ("bee", 3, 0), ("cow", -3, -3)])
        return f"{source.gauss(x, 0.3):.4f},{source.gauss(y, 0.3):.4f},{kind}"

    table(path, "x,y,kind", row, 300)


def flowers(path, count=150, seed=1):
    """Four measures of flowers of three species, as in iris.csv."""

    def row(source):
        name, middle = source.choice([("rose", 1.0), ("tulip", 3.0), ("lily", 5.0)])
        return ",".join(f"{source.gauss(middle + i, 0.4):.2f}" for i in range(4)) + "," + name

    table(path, "sepal_length,sepal_width,petal_length,petal_width,species", row, count, seed)


def digits(path):
    """Images of 28 x 28 in MNIST's format: noise with a bright band, whose height determines the class."""
    path.mkdir(parents=True)
    source = random.Random(1)
    for part, count in (("train", 400), ("t10k", 100)):
        labels = bytes(i % 10 for i in range(count))
        images = b""
        for label in labels:
            image = bytearray(source.choices(range(100), k=28 * 28))
            image[28 * (2 * label + 4):28 * (2 * label + 6)] = bytes([220] * 28 * 2)
            images += bytes(image)
        (path / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, count, 28, 28) + images)
        (path / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, count) + labels)


def reviews(path):
    source = random.Random(1)
    rows = [("pos", GOOD), ("neg", BAD)] * 60
    path.write_text("".join(f"{label}\t{source.choice(SENTENCES).format(*source.choices(words, k=2))}\n"
                            for label, words in rows))


def vocabulary(path):
    letters = "abcdefghijklmnopqrstuvwxyz"
    path.write_text("\n".join(VOCABULARY + [f"##{letter}" for letter in letters] + list(letters[1:])) + "\n")


def bert_folder(path):
    """A Hugging Face folder with a small BERT of random weights."""
    from safetensors.numpy import save_file
    import numpy

    path.mkdir(parents=True)
    vocabulary(path / "vocab.txt")
    words, width, inner, context = len((path / "vocab.txt").read_text().split()), 32, 48, 64
    (path / "config.json").write_text(json.dumps({
        "model_type": "bert", "vocab_size": words, "hidden_size": width, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": inner, "max_position_embeddings": context,
        "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12}))
    random_numbers = numpy.random.default_rng(1)
    shapes = {"embeddings.word_embeddings.weight": (words, width), "embeddings.position_embeddings.weight": (context, width),
              "embeddings.token_type_embeddings.weight": (2, width), "pooler.dense.weight": (width, width)}
    norms, biases = ["embeddings.LayerNorm"], {"pooler.dense": width}
    for layer in range(2):
        name = f"encoder.layer.{layer}."
        for part, (rows, columns) in {"attention.self.query": (width, width), "attention.self.key": (width, width),
                                      "attention.self.value": (width, width), "attention.output.dense": (width, width),
                                      "intermediate.dense": (inner, width), "output.dense": (width, inner)}.items():
            shapes[f"{name}{part}.weight"] = (rows, columns)
            biases[f"{name}{part}"] = rows
        norms += [f"{name}attention.output.LayerNorm", f"{name}output.LayerNorm"]
    tensors = {name: random_numbers.normal(0, 0.02, shape) for name, shape in shapes.items()}
    tensors |= {f"{name}.bias": numpy.zeros(size) for name, size in biases.items()}
    for name in norms:
        tensors |= {f"{name}.weight": numpy.ones(width), f"{name}.bias": numpy.zeros(width)}
    save_file({f"bert.{name}": value.astype(numpy.float32) for name, value in tensors.items()},
              path / "model.safetensors")


def tokenizer(path):
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(sentences(1, 100), tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>"]))
    made.save(str(path))


def pages_of_json(path):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(1, 300)))


def torchscript(path):
    import torch

    torch.manual_seed(1)
    torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))).save(str(path))


# A training loop of torch.distributed over rondo's plug-in.
TRAIN_PY = """import rondo_torch
import torch
import torch.distributed as dist

dist.init_process_group("rondo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(21):
    input = torch.randn(32, 4)
    loss = torch.nn.functional.mse_loss(model(input), input.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""


class Provider:
    """Makes files in the folder of a page. `repository`, `build` and `prefix` are the sources, the build under test and
    its installation."""

    def __init__(self, repository, build, prefix, environment):
        self.repository, self.build, self.prefix, self.environment = repository, build, prefix, environment

    def rondo(self, folder, *words):
        subprocess.run([self.prefix / "bin" / "rondo", *words], cwd=folder, env=self.environment, check=True,
                       capture_output=True, text=True)

    def link(self, path, target):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def trained(self, *words):
        """Returns a maker of a run directory that holds a short training."""

        def make(path):
            folder = path.parent.parent
            self.provide(folder, " ".join(words))
            self.rondo(folder, "train", *words, "--run-dir", f"{path.parent.name}/{path.name}")

        return make

    def profile(self, path):
        self.rondo(path.parent, "profile", "--model", "gpt-tiny", "--batch-size", "4", "--nproc-per-node", "2", "--json",
                   path.name)

    def plan(self, path):
        self.provide(path.parent, "profile.json")
        self.rondo(path.parent, "plan", "profile.json", "--ranks", "2", "--memory-limit", "1GiB", "--plan-out", path.name)

    def archive(self, path):
        """An archive of torch::save."""
        self.provide(path.parent, "runs/gpt")
        self.rondo(path.parent, "checkpoint", "convert", "runs/gpt", path.name)

    def checkout(self, path):
        """A Makefile whose targets are those of the repository, with everything built."""
        path.write_text(f"%:\n\t@$(MAKE) -s -C {self.repository} -o build -o setup PRESET={self.build.name} $@\n")

    def program(self, path):
        """A training program of the user: the smallest example."""
        path.write_text(f'#!/bin/sh\nexec {self.build}/bin/examples/minimal "$@"\n')
        path.chmod(0o755)

    def project(self, path):
        """A CMake project of the user: the one of the examples."""
        shutil.copytree(self.repository / "examples" / "external", path.parent, dirs_exist_ok=True)

    def packages(self, path):
        for package in (self.repository / "build" / "package").glob(path.name):
            self.link(path.parent / package.name, package)

    def makers(self):
        small = ["--data", "texts/", "--model", "gpt-tiny", "--seq-len", "32", "--steps", "20", "--checkpoint-every", "10"]
        return {
            "texts/": texts, "books/": texts, "text.txt": text_file, "train.txt": text_file, "points.csv": points,
            "iris.csv": flowers, "test.csv": lambda path: flowers(path, 40, 2),
            "new_flowers.csv": lambda path: flowers(path, 10, 3), "mnist/": digits, "reviews.tsv": reviews,
            "vocab.txt": vocabulary, "bert-base-uncased/": bert_folder, "bert-base/": bert_folder,
            "tokenizer.json": tokenizer, "pages.jsonl": pages_of_json, "net.pt": torchscript, "model.pt": self.archive,
            "libmine.so": lambda path: self.link(path, self.build / "lib" / "libown_model.so"),
            "./train": self.program,
            "train.py": lambda path: path.write_text(TRAIN_PY), "profile.json": self.profile, "plan.json": self.plan,
            "rondo-*.whl": self.packages, "rondo-*-linux-x86_64-torch2.13.tar.gz": self.packages,
            "cmake -S .": self.project, "./python": lambda path: self.link(path, self.repository / "python"),
            "make install": lambda path: self.checkout(path.parent / "Makefile"),
            "bench/": lambda path: self.link(path, self.repository / "bench"),
            "build/release/": lambda path: self.link(path, self.build),
            "runs/a": self.trained(*small), "runs/b": self.trained(*small, "--lr", "3e-3"),
            "runs/c": self.trained(*small, "--strategy", "zero2", "--nproc-per-node", "2"), "runs/gpt": self.trained(*small),
            "runs/sharded": self.trained(*small, "--strategy", "zero2", "--nproc-per-node", "2", "--checkpoint-sharded"),
            "runs/iris": self.trained("--data", "iris.csv", "--epochs", "2"),
            "runs/digits": self.trained("--data", "mnist/", "--model", "convnet", "--epochs", "1"),
        }

    def provide(self, folder, text):
        """Makes the files that the text reads and that are not there."""
        for name, make in self.makers().items():
            path = folder / name
            if reads(text, name) and not os.path.lexists(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                make(path)


def reads(text, name):
    """Returns whether commands read what is named before they write it."""
    first = re.search(rf"(?<![\w/.-])(?:\./)?{re.escape(name)}" + ("" if name.endswith("/") else r"(?![\w.-])"), text)
    if first is None or re.search(r"(--json|--plan-out|-o) $", text[:first.start()]):
        return False
    return not text[:first.start()].endswith("--run-dir ") or re.match(" --(resume|sample)", text[first.end():]) is not None
