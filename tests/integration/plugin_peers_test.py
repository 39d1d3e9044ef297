"""scripts/plugin_peers.sh on a small folder of tests: it names those that differ, with the known reason, and fails for others."""
import os
import subprocess

import pytest

TESTS = """
import tempfile
import unittest

import torch
import torch.distributed as dist


class Tests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        dist.init_process_group("gloo", init_method=f"file://{folder.name}/meet", rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)

    def is_made_by_gloo(self):
        return type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__ == "ProcessGroupGloo"

    def test_all_reduce(self):
        value = torch.ones(3)
        dist.all_reduce(value)
        self.assertEqual(value.tolist(), [1.0] * 3)

    def test_all_to_all_single(self):
        self.assertTrue(self.is_made_by_gloo())

    def test_class(self):
        self.assertTrue(self.is_made_by_gloo())

    @unittest.skip("needs a GPU")
    def test_gpu(self):
        pass
"""


@pytest.mark.tooling
def test_names_tests_that_differ(repository, rondo_bin, tmp_path):
    (tmp_path / "distributed").mkdir()
    (tmp_path / "distributed" / "test_c10d_object_collectives.py").write_text(TESTS)

    def compare(*words):
        command = [repository / "scripts" / "plugin_peers.sh", tmp_path, "--suites", "objects", *words]
        return subprocess.run(command, env=os.environ | {"PRESET": rondo_bin.parent.name, "TORCH": ""}, capture_output=True, text=True, timeout=600)

    done = compare()
    assert done.returncode == 1 and "| objects | 3 of 3 | 1 of 3 | 1 | 0 | 0 |" in done.stdout, done.stdout + done.stderr
    assert "Over rondo pass 1 of the 3 that pass over Gloo: 33.3 %" in done.stdout
    known, other = done.stdout.split("\nobjects: ")[1:]
    assert "test_all_to_all_single: failed over rondo" in known and "rondo copies such a tensor" in known
    assert "test_class: failed over rondo" in other and "AssertionError: False is not true" in other
    done = compare("--names", "not class")
    assert done.returncode == 0 and "Over rondo pass 1 of the 2 that pass over Gloo" in done.stdout, done.stdout + done.stderr


@pytest.mark.tooling
def test_names_what_makes_the_wheel(repository, tmp_path):
    done = subprocess.run([repository / "scripts" / "plugin_peers.sh", tmp_path], env=os.environ | {"TORCH": "1.0"}, capture_output=True, text=True)
    assert done.returncode == 1 and "make package KINDS=wheel TORCH=1.0" in done.stderr, done
