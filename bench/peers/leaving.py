"""How a peer's rank ends."""
import os
import sys


def leave():
    """Ends the process at once. PyTorch's threads have been seen to abort an interpreter that ends by itself, long after
    what was to be measured."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
