"""Makes the backend "gloo" of torch.distributed be rondo in every process that has this folder in PYTHONPATH.

Programs that name Gloo, as PyTorch's own tests do, then run over rondo without a change, also in the processes they spawn.
What it changes, and nothing else:

- `torch.distributed.ProcessGroupGloo`, which "gloo" is made of, makes a group of rondo's. The name of the backend stays "gloo",
  so what torch.distributed keeps for Gloo by name (monitored_barrier) reaches rondo as well. Of Gloo's own options the timeout is
  taken, devices and threads are not.
- `isinstance(group, ProcessGroupGloo)` is true of rondo's groups.
- In C++ the group's type is CUSTOM, not GLOO: DDP's logger takes a GLOO for an object of Gloo's.
- `create_device`, which tests call on a group of Gloo's, is there on every backend, and what it gives is used by nobody.

- PyTorch's distributed_test does not look for "gloo:all_reduce" and the like among the profiler's events: those are Gloo's own.

The group that TORCH_DISTRIBUTED_DEBUG=DETAIL adds for its checks stays Gloo's own, as it is beside every other backend.
"""

import importlib.abc
import importlib.machinery
import sys



def substitute_for(gloo):
    class Meta(type):
        def __instancecheck__(cls, group):
            return isinstance(group, gloo) or getattr(group, "name", str)() == "rondo"

    class ProcessGroupGloo(metaclass=Meta):
        _Options = getattr(gloo, "_Options", None)
        Options = getattr(gloo, "Options", None)
        create_device = staticmethod(gloo.create_device)
        create_default_device = staticmethod(gloo.create_default_device)

        def __new__(cls, store, rank, size, options=None, timeout=None, enable_reconfigure=False):
            # torch 2.14 and newer name enable_reconfigure in every call: true for groups whose ranks change, which rondo has not.
            if enable_reconfigure:
                raise NotImplementedError("rondo has no groups whose ranks change (enable_reconfigure)")
            from datetime import timedelta

            from rondo_torch.backend import create_backend
            from torch._C._distributed_c10d import _DistributedBackendOptions

            timeout = timeout or (options if isinstance(options, timedelta) else getattr(options, "_timeout", None))
            request = _DistributedBackendOptions()
            request.store, request.group_rank, request.group_size = store, rank, size
            request.timeout = timeout or timedelta(minutes=30)
            request.group_id = "gloo"
            request.global_ranks_in_group = list(range(size))
            return create_backend(request, None)

    return ProcessGroupGloo


def patch(module):
    from torch._C._distributed_c10d import Backend, ProcessGroup

    custom = ProcessGroup.BackendType.CUSTOM
    register = ProcessGroup._register_backend

    def register_as_custom(self, device, kind, backend=None):
        register(self, device, custom if isinstance(backend, substitute) and not isinstance(backend, gloo) else kind, backend)

    ProcessGroup._register_backend = register_as_custom
    set_default = ProcessGroup._set_default_backend

    def set_default_or_custom(self, kind):
        set_default(self, custom if kind == ProcessGroup.BackendType.GLOO else kind)

    ProcessGroup._set_default_backend = set_default_or_custom
    gloo = module.ProcessGroupGloo
    substitute = module.ProcessGroupGloo = substitute_for(gloo)
    Backend.create_device = staticmethod(gloo.create_device)
    wrap = module._create_process_group_wrapper

    def wrap_with_gloo(*arguments, **named):
        module.ProcessGroupGloo = gloo
        try:
            return wrap(*arguments, **named)
        finally:
            module.ProcessGroupGloo = substitute

    module._create_process_group_wrapper = wrap_with_gloo


def without_events(module):
    for supported in (module.PROFILING_SUPPORTED_BACKENDS, module.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        if "gloo" in supported:
            supported.remove("gloo")


PATCHES = {"torch.distributed.distributed_c10d": patch,
           "torch.testing._internal.distributed.distributed_test": without_events}


class Finder(importlib.abc.MetaPathFinder):
    """Patches a module when it is first imported, so that processes that never use torch do not load it."""

    def find_spec(self, name, path, target=None):
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def run_and_patch(module):
            run(module)
            PATCHES[name](module)

        spec.loader.exec_module = run_and_patch
        return spec


sys.meta_path.insert(0, Finder())
