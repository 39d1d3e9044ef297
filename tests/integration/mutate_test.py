"""Damaged and hostile inputs, and outputs that cannot be written: a short run of tests/mutate; `make mutate` runs
thousands."""
import itertools
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutate"))

import corpus  # noqa: E402
import crafted  # noqa: E402
import run as mutate  # noqa: E402

# Fixed, so that a failure is due to a change and not to chance; `make mutate` draws its own seed.
SEED = 20
TORCH_FREE, ON_LIBTORCH = 60, 12


@pytest.fixture(scope="module")
def made(tmp_path_factory, rondo_bin):
    binaries = rondo_bin.resolve()
    root = tmp_path_factory.mktemp("mutate") / "corpus"
    return root, binaries, corpus.make(root, binaries)


# Calls by which rondo opens and parses its input.
READS = re.compile(r"\b(read_json_file|read_regular_file|read_text_file|parse_json_strict|parse_json_flag)\("
                   r"|\b(MappedInput|RegularFile|SafetensorsFile|ifstream)\b( \w+)?[({>]|jit::load\(|PyTorchStreamReader")


def readers(repository):
    """Yields source files that read input, as the cases name them. Files of the kernel are excluded."""
    for source in itertools.chain((repository / "rondo").rglob("*.cpp"), (repository / "apps").rglob("*.cpp")):
        if any(READS.search(line) and "/proc/" not in line and "/sys/" not in line and not line.lstrip().startswith("//")
               for line in source.read_text().splitlines()):
            yield str(source.relative_to(repository).with_suffix("")).removeprefix("rondo/")


# Calls by which programs write to a flag's path, up to the argument with the path.
WRITES = re.compile(r"\b(?:write_output|write_json|make_shared<(?:CsvLog|JsonLog)>)\(\s*([\w.>-]+)"
                    r"|\(\s*([\w.>-]+),\s*(?:rondo::)?ReplacedFile::Links::follow")


def writes(repository):
    """Yields places as crafted.WRITES names them."""
    for source in itertools.chain((repository / "apps").rglob("*.cpp"), (repository / "rondo" / "train" / "log_targets").rglob("*.cpp")):
        if source.parent.name == "common":
            continue
        for match in WRITES.finditer(source.read_text()):
            yield f"{source.relative_to(repository).with_suffix('')}:{match[1] or match[2]}"


def test_every_output_flag_has_a_writer(repository):
    known = crafted.WRITES.keys() | crafted.OTHER_WRITES.keys()
    found = set(writes(repository))
    assert found - known == set(), "add a writer to tests/mutate/crafted.py"
    assert known - found == set(), "they are gone"
    assert {writer for tried in crafted.WRITES.values() for writer in tried} == set(crafted.WRITERS)


def taken_in_turn(cases):
    """Returns one case of each program, then a second one of each, and so on: every prefix covers all programs."""
    turns = {}
    seen = [turns.setdefault(case.command[0], itertools.count()) for case in cases]
    return [case for _, case in sorted(zip(map(next, seen), cases), key=lambda pair: pair[0])]


def test_every_program_and_every_reader_has_a_case(made, repository):
    _, binaries, cases = made
    programs = {path.name for path in binaries.glob("rondo-*")}
    if "rondo-train-worker" not in programs:
        pytest.skip("built without training: the cases of trained models need it")
    assert programs - {case.command[0] for case in cases} - set(corpus.OTHER_PROGRAMS) == set(), "add a Case to tests/mutate/corpus.py"
    known = {reader for case in cases for reader in case.reads.split()}
    assert known & set(corpus.OTHER_READERS) == set()
    found = set(readers(repository))
    assert found - known - set(corpus.OTHER_READERS) == set(), "add a Case that reads= this source file to tests/mutate/corpus.py"
    gone = {reader for reader in known | set(corpus.OTHER_READERS)
            if not ((repository / "rondo" / reader).with_suffix(".cpp").exists() or (repository / reader).with_suffix(".cpp").exists())}
    assert gone == set()


@pytest.mark.parametrize("attack", crafted.all_attacks())
def test_attack(made, tmp_path, matmul_measurements, attack):
    root, binaries, _ = made
    environment = mutate.environment(tmp_path) | {"RONDO_MATMUL_MEASUREMENTS": str(matmul_measurements)}
    assert crafted.all_attacks()[attack](crafted.Workplace(binaries, root, tmp_path, environment, whole=False)) == []


def test_every_program_is_tried_on_a_full_disk(rondo_bin):
    assert crafted.programs_without_a_printer(rondo_bin) == []


@pytest.mark.parametrize("torch, count", [(False, TORCH_FREE), (True, ON_LIBTORCH)])
def test_damaged_inputs(made, torch, count):
    root, binaries, cases = made
    of_kind = taken_in_turn([case for case in cases if case.torch == torch])
    found, ran = mutate.run_many(root, binaries, of_kind, SEED, range(count), workers=2)
    assert found == []
    assert ran == count
