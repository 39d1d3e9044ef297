"""What torch.distributed calls to make a communicator, and the rendezvous without a network port."""

import os

from torch.distributed import PrefixStore, register_rendezvous_handler

from rondo_torch import native


def create_backend(options, _backend_options):
    """For torch.distributed.Backend.register_backend with the extended interface; collective over options.store."""
    rank, size = options.group_rank, options.group_size
    # A process group may be made again in a store that outlives it, as torchrun's does. Nobody can come here the next time
    # before all have come this time, so the number of arrivals says which time it is.
    generation = (options.store.add("rondo/arrivals", 1) - 1) // size
    store = PrefixStore(f"rondo/{generation}", options.store)
    world_ranks = list(options.global_ranks_in_group) or list(range(size))
    return native.create_backend(store, rank, size, world_ranks, f"process group {options.group_id}", options.timeout)


def _rendezvous(url, timeout=None, **_):
    """The handler of "rondo://": under `rondo run`, ranks meet in the launcher's shared memory instead of a TCPStore."""
    store = native.launcher_store()
    if store is None:
        raise ValueError('init_method="rondo://" is for processes that `rondo run` started on one host; '
                         "elsewhere leave init_method out")
    if timeout is not None:
        store.set_timeout(timeout)
    yield store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    raise RuntimeError("the ranks of a job that `rondo run` started do not change")


register_rendezvous_handler("rondo", _rendezvous)
