"""Groups, meshes and forked children: run by python_plugin_test.py as  groups.py RENDEZVOUS RANK RANKS  on 4 ranks."""

import sys

import rondo_torch
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

rendezvous, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)


def sum_of_ranks(group=None):
    tensor = torch.full((50_000,), float(rank))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


dist.init_process_group("rondo", init_method=rendezvous, rank=rank, world_size=size)
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
assert sum_of_ranks(pairs[rank // 2]) == (1 if rank < 2 else 5)
backwards = dist.new_group([3, 0], use_local_synchronization=True) if rank in (0, 3) else None
if backwards:
    assert sum_of_ranks(backwards) == 3
dist.destroy_process_group(pairs[rank // 2])
assert sum_of_ranks() == 6

# A mesh of two dimensions: sharded by columns, replicated by rows (HSDP), and tensors distributed on it.
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
assert sum_of_ranks(mesh.get_group("replicate")) == (2 if rank % 2 == 0 else 4)
whole = torch.arange(64.0).reshape(8, 8)
laid_out = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
assert laid_out.to_local().shape == (4, 4)
assert torch.equal(laid_out.redistribute(placements=[Replicate(), Shard(0)]).full_tensor(), whole)
torch.manual_seed(3)
model = torch.nn.Linear(300, 300)
expected = model.weight.detach().clone()
fully_shard(model, mesh=mesh)
inputs = torch.full((2, 300), float(rank))
model(inputs).sum().backward()
assert torch.equal(model.weight.full_tensor(), expected)
assert torch.allclose(model.weight.grad.full_tensor(), torch.full((300, 300), 3.0))


# Forked children, as in PyTorch's DataLoader: their allocations and writes must not affect this process.
class Inherited(torch.utils.data.Dataset):
    values = torch.zeros(64, 50_000)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        fresh = torch.full((50_000,), float(index))
        self.values[index] += 1
        return fresh + self.values[index]


dataset = Inherited()
assert rondo_torch.is_registered(dataset.values)
here = torch.full((50_000,), -1.0)
for batch, start in zip(torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=1), range(0, 64, 8)):
    assert torch.equal(batch[:, 0], torch.arange(start, start + 8) + 1.0)
    here = here.clone()
assert here.eq(-1).all() and dataset.values.eq(0).all()
assert sum_of_ranks() == 6

dist.barrier()
dist.destroy_process_group()
print("groups: ok", flush=True)
