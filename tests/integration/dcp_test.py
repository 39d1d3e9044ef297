"""PyTorch's distributed checkpoints, through the documented script: parts of two ranks become one model."""
import json
import pathlib

import numpy
from safetensors_files import read_safetensors

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "python" / "dcp_to_rondo.py"
# Two ranks, each with half of a weight's rows.
WRITER = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
sys.path.append(sys.argv[4])
from leaving import leave
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh
rank = int(sys.argv[2])
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
weight = distribute_tensor(torch.arange(24.).view(6, 4), mesh, [Shard(0)])
state = {"model": {"module.0.weight": weight, "module.0.bias": torch.arange(6.)}, "step": 7}
dcp.save(state, checkpoint_id=sys.argv[1])
dist.destroy_process_group()
leave()
"""


def test_converts_sharded_checkpoint(rondo, interpreter, clean_environment, tmp_path):
    (tmp_path / "writer.py").write_text(WRITER)
    leaving = REPOSITORY / "bench" / "peers"
    ranks = [([tmp_path / "writer.py", tmp_path / "dcp", rank, tmp_path / "meet", leaving], clean_environment) for rank in range(2)]
    conversions = [([SCRIPT, tmp_path / "dcp", tmp_path / name, "--key", "model"], clean_environment) for name in ("w.safetensors", "w.pt")]
    for commands in (ranks, conversions):
        for done in interpreter.run(commands, tmp_path, 120):
            assert done.returncode == 0, done.err
    tensors = read_safetensors(tmp_path / "w.safetensors")
    assert set(tensors) == {"0.weight", "0.bias"}
    assert numpy.array_equal(tensors["0.weight"], numpy.arange(24, dtype="float32").reshape(6, 4))
    same = rondo("checkpoint", "diff", "w.safetensors", "w.pt", "--json", "-")
    assert same.returncode == 0 and json.loads(same.stdout)["differences"] == [], same.stdout + same.stderr


def test_what_is_none_is_refused(interpreter, clean_environment, tmp_path):
    done, = interpreter.run([([SCRIPT, tmp_path, tmp_path / "w.pt"], clean_environment)], tmp_path, 120)
    assert done.returncode == 1 and ".metadata" in done.err
