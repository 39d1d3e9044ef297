"""What benchmarks of `rondo train` share: a text to train on, and where their results go."""
import json
import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def write_training_text(path):
    """rondo's own sources, in one file."""
    path.write_text("".join(source.read_text() for source in sorted((REPOSITORY / "rondo").rglob("*.cpp"))))


def print_result(result, target):
    """A line for the reader while the benchmark goes on, beside the JSON where --json - has standard output."""
    print(json.dumps(result), file=sys.stderr if target == "-" else sys.stdout, flush=True)


def write_results(results, target):
    """As JSON, where --json asks for it: a file, or - for standard output."""
    if target:
        content = json.dumps(results, indent=2) + "\n"
        sys.stdout.write(content) if target == "-" else pathlib.Path(target).write_text(content)
