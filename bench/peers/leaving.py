"""The end of a PyTorch rank's process that had a group over Gloo."""
import os
import sys


def leave():
    """Ends the process at once, without finalizing the interpreter. Gloo's threads may still release operations with
    Python objects at that time. They acquire the interpreter's lock, which ends a thread while Python is finalized. In
    noexcept code that is "terminate called without an active exception"
    (https://github.com/pytorch/pytorch/pull/179291)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
