"""Training libraries over the plug-in reach the losses that they reach over Gloo. `make nightly STEPS=frameworks` runs it."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(os.environ.get("RONDO_BIN", HERE.parents[1] / "build" / "release" / "bin")).resolve().parent / "python"
LIBRARIES = sorted(path.stem.removeprefix("with_") for path in (HERE / "programs").glob("*.py"))


def losses(library, backend, folder):
    environment = os.environ | {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TMPDIR": str(folder),
                                "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                           HERE / "programs" / f"with_{library}.py", backend], env=environment, cwd=folder, text=True, capture_output=True,
                          timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    # The programs' own lines: libraries print as well.
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"backend"')]
    assert [report["backend"] for report in reports] == [backend], done.stdout
    return reports[0]["losses"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_losses_equal_those_over_gloo(library, tmp_path):
    if importlib.util.find_spec(library) is None:
        reason = f"{library} is not installed"
        print(reason)
        pytest.skip(reason)
    over_gloo, over_rondo = (losses(library, backend, tmp_path) for backend in ("gloo", "rondo"))
    print(f"{library}: {over_gloo} over gloo, {over_rondo} over rondo")
    assert len(over_gloo) >= 4 and over_gloo[-1] < over_gloo[0]
    assert over_rondo == pytest.approx(over_gloo, rel=1e-5)
