"""rondo's communication engines as the backend "rondo" of torch.distributed, on one host and across hosts:

    import rondo_torch
    torch.distributed.init_process_group("rondo")

RONDO_REGISTERED_MEMORY=0 keeps libtorch's own CPU allocator: nothing is then shared with peers in place, all is copied.
"""

from rondo_torch.built_with import TORCH_VERSION
from rondo_torch.built_with import VERSION as __version__


def _minor(version):
    """"2.13" of "2.13.0+cpu": patch releases, and builds for a CPU and for CUDA, have one binary interface."""
    return ".".join(version.split("+")[0].split(".")[:2])


_GET = (f"pip install 'torch=={_minor(TORCH_VERSION)}.*', or install the wheel of rondo for the torch that is here; from sources: "
        "pip install --no-build-isolation --force-reinstall --no-deps ./python")

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(f"rondo_torch was built with torch {TORCH_VERSION}, and this Python has no torch: {_GET}") from None

if _minor(torch.__version__) != _minor(TORCH_VERSION):
    raise ImportError(
        f"rondo_torch was built with torch {TORCH_VERSION}, but the torch of this Python is {torch.__version__}: {_GET}")

try:
    import rondo_torch.native  # noqa: E402, F401  (only after the check above)
except ImportError as error:
    if "version `GLIBC" not in str(error):
        raise
    raise ImportError("this rondo_torch needs a newer system, as Debian 12 and Ubuntu 22.04 are; build it from the sources here: "
                      f"pip install --no-build-isolation ./python. {error}") from None

from rondo_torch.backend import create_backend, make_default  # noqa: E402
from rondo_torch.native import (  # noqa: E402
    CommunicationError, MismatchError, PeerLostError, TimeoutError, UsageError, empty_registered, is_registered,
    registers_allocations)

__all__ = ["CommunicationError", "MismatchError", "PeerLostError", "TimeoutError", "UsageError", "__version__",
           "empty_registered", "is_registered", "make_default", "registers_allocations"]

dist.Backend.register_backend("rondo", create_backend, extended_api=True, devices=["cpu"])
