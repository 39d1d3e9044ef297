"""The commands of `make quickstart` after the build, with fewer steps and batches: losses fall, text is generated, the report
exists."""
import json
import subprocess


def test_quickstart_trains_samples_and_reports(repository, rondo_bin, tmp_path):
    # A separate tree with the same sources, so that the run directory is not in this one.
    for name in ("rondo", "scripts"):
        (tmp_path / name).symlink_to(repository / name)
    (tmp_path / "scripts").unlink()
    (tmp_path / "scripts").mkdir()
    for script in ("common.sh", "quickstart.sh"):
        (tmp_path / "scripts" / script).write_bytes((repository / "scripts" / script).read_bytes())
    result = subprocess.run(["bash", tmp_path / "scripts" / "quickstart.sh", rondo_bin, "20", "4"], capture_output=True, text=True,
                            timeout=300)
    assert result.returncode == 0, result.stderr
    (run,) = (tmp_path / "runs").iterdir()
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [step["loss"] for step in steps if step.get("rank") == 0 and "loss" in step]
    assert len(losses) == 20
    assert losses[-1] < 0.8 * losses[0]
    assert {step["rank"] for step in steps if "rank" in step} == {0, 1}
    assert "// Each" in result.stdout
    assert "<html" in (run / "report.html").read_text()[:1000].lower()
    assert f"{run.name}/report.html" in result.stdout
