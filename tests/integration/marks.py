"""Marks of parameters of a test."""
import pytest


def long(*values):
    """Returns a test's parameters that `make nightly STEPS=long` runs, since others cover most of what they do."""
    return pytest.param(*values, marks=pytest.mark.long)
