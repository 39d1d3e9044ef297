"""What torch.distributed calls to make a communicator, and the rendezvous without a network port."""

import atexit
import datetime
import functools
import os

import torch
from torch.distributed import PrefixStore, distributed_c10d, register_rendezvous_handler

from rondo_torch import native


def create_backend(options, _backend_options):
    """For torch.distributed.Backend.register_backend with the extended interface; collective over options.store."""
    if getattr(options, "enable_reconfigure", False):  # of torch 2.14 and newer
        raise NotImplementedError("backend rondo has no groups whose ranks change: leave enable_reconfigure out")
    rank, size = options.group_rank, options.group_size
    # A process group may be created again in a store that outlives it, such as torchrun's. No rank can arrive
    # for the next group before all have arrived for this one, so the number of arrivals identifies the group.
    generation = (options.store.add("rondo/arrivals", 1) - 1) // size
    store = PrefixStore(f"rondo/{generation}", options.store)
    world_ranks = list(options.global_ranks_in_group) or list(range(size))
    return native.create_backend(store, rank, size, world_ranks, f"process group {options.group_id}", options.timeout)


def _rendezvous(url, timeout=None, **_):
    """The handler of "rondo://": under `rondo run`, ranks meet in the launcher's shared memory instead of a TCPStore."""
    store = native.launcher_store()
    if store is None or os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]:
        raise ValueError('init_method="rondo://" is for processes that `rondo run` started on one host; '
                         "elsewhere leave init_method out")
    if timeout is not None:
        store.set_timeout(timeout)
    yield store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    raise RuntimeError("the ranks of a job that `rondo run` started do not change")


register_rendezvous_handler("rondo", _rendezvous)


def make_default(enabled=True):
    """Makes rondo what torch.distributed takes for CPU tensors where no backend is named, or with False Gloo again.

    Without it, clients that ask torch.distributed for the default (init_process_group() or init_device_mesh() without a
    backend, Lightning's strategies) get Gloo. Call it before they create their first group; groups that exist stay as they are.
    """
    distributed_c10d.Backend.default_device_backend_map["cpu"] = "rondo" if enabled else "gloo"


def _naming_rondo(new_process_group_helper):
    """torch.distributed takes a group without a named backend for one of Gloo's or NCCL's, whatever the default is."""

    @functools.wraps(new_process_group_helper)
    def wrapped(group_size, group_rank, global_ranks_in_group, backend, *args, **kwargs):
        if str(backend) == distributed_c10d.Backend.UNDEFINED:
            default = distributed_c10d.BackendConfig(backend).get_device_backend_map()
            if default == {"cpu": "rondo"}:
                backend = distributed_c10d.Backend("rondo")
        return new_process_group_helper(group_size, group_rank, global_ranks_in_group, backend, *args, **kwargs)

    return wrapped


distributed_c10d._new_process_group_helper = _naming_rondo(distributed_c10d._new_process_group_helper)


def _reaching_rondo(set_pg_timeout):
    """torch.distributed's _set_pg_timeout knows the classes of Gloo's and NCCL's backends only, and passes over others."""

    @functools.wraps(set_pg_timeout)
    def wrapped(timeout, group=None):
        named = group if group is not None else distributed_c10d._get_default_group()
        devices = named._device_types if isinstance(named, distributed_c10d.ProcessGroup) else []
        others = [device for device in devices if device != torch.device("cpu")]
        if torch.device("cpu") in devices:
            backend = named._get_backend(torch.device("cpu"))
            if isinstance(backend, native.Backend):
                backend.set_timeout(timeout)
                if not others:
                    return None
        return set_pg_timeout(timeout, group)

    return wrapped


distributed_c10d._set_pg_timeout = _reaching_rondo(distributed_c10d._set_pg_timeout)



def _taking_rondo(monitored_barrier):
    """torch.distributed's monitored_barrier refuses every group that is not Gloo's by name."""

    @functools.wraps(monitored_barrier)
    def wrapped(group=None, timeout=None, wait_all_ranks=False):
        named = group if group is not None else distributed_c10d._get_default_group()
        is_member = isinstance(named, distributed_c10d.ProcessGroup) and torch.device("cpu") in named._device_types
        if not is_member or not isinstance(named._get_backend(torch.device("cpu")), native.Backend):
            return monitored_barrier(group, timeout, wait_all_ranks)
        if isinstance(timeout, (int, float)):
            timeout = datetime.timedelta(seconds=timeout)
        if timeout is None:
            timeout = named._get_backend(torch.device("cpu")).options._timeout
        return named.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)

    return wrapped


distributed_c10d.monitored_barrier = _taking_rondo(distributed_c10d.monitored_barrier)
torch.distributed.monitored_barrier = distributed_c10d.monitored_barrier

# Waits for callbacks of futures, which need the interpreter.
atexit.register(native.stop_threads)
