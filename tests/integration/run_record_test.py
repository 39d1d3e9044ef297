"""run.json and its use in the report, from real runs: start times, hosts, commands."""
import datetime
import json
import socket

from report_pages import browser, open_page  # noqa: F401  (fixtures)
from train_test import text, train  # noqa: F401  (fixtures)


def starts(run_directory):
    return json.loads((run_directory / "run.json").read_text())["starts"]


def test_records_start_and_resume(train, rondo, open_page, tmp_path):  # noqa: F811
    before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    first = train("--steps", 4, "--checkpoint-every", 2, "--eval-every", 2, "--nproc-per-node", 2)
    assert first.returncode == 0, first.stderr
    start, = starts(tmp_path / "run")
    assert start["strategy"] == "ddp", "not the auto that was asked for"
    assert start["backend"] == "native" and start["ranks"] == 2 and start["first_step"] == 0
    assert start["host"] == socket.gethostname() and start["program"] == "rondo train"
    assert start["version"] == rondo("--version").stdout.split()[1]
    assert before <= datetime.datetime.fromisoformat(start["time"].replace("Z", "+00:00")) <= datetime.datetime.now(datetime.timezone.utc)
    assert start["command"].startswith("rondo train --data ") and start["command"].endswith("--nproc-per-node 2")

    again = train("--steps", 6, "--checkpoint-every", 2, "--nproc-per-node", 1, "--resume")
    assert again.returncode == 0, again.stderr
    assert starts(tmp_path / "run")[0] == start
    second = starts(tmp_path / "run")[1]
    assert (second["strategy"], second["ranks"], second["first_step"]) == ("one_device", 1, 4)

    assert rondo("report", tmp_path / "run").returncode == 0
    probe = open_page(tmp_path / "run" / "report.html")
    assert "ddp, then one_device" in probe["head"] and "auto" not in probe["head"]
    assert "resumed once" in probe["head"] and socket.gethostname() in probe["head"] and "--resume" in probe["head"]


def test_the_command_is_as_it_was_typed(train, tmp_path):  # noqa: F811
    """The original command, not the ranks' arguments: with --json - they write to a file of the launcher."""
    result = train("--steps", 1, "--nproc-per-node", 2, "--json", "-")
    assert result.returncode == 0, result.stderr
    assert starts(tmp_path / "run")[0]["command"].endswith("--nproc-per-node 2 --json -")
