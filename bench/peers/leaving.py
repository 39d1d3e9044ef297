"""How a rank of PyTorch's ends that has had a group over Gloo."""
import os
import sys


def leave():
    """Ends the process at once, without finalizing the interpreter. Gloo's threads hold operations whose Python objects they may
    let go as late as then. They ask for the interpreter's lock, which ends a thread while Python is finalized; in code that is
    noexcept that is "terminate called without an active exception" (https://github.com/pytorch/pytorch/pull/179291)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
