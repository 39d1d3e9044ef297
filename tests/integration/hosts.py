"""Emulated hosts for tests: network namespaces on this machine, joined by shaped links (veth, tc tbf)."""
import contextlib
import os
import subprocess
import uuid

import pytest


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_no_namespaces():
    """Returns the reason why this machine has no emulated hosts; None if it has."""
    if os.geteuid() != 0:
        return "emulated hosts need root"
    try:
        name = f"rondo-probe-{uuid.uuid4().hex[:6]}"
        probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    except FileNotFoundError:
        return "emulated hosts need ip of the package iproute2"
    if probe.returncode != 0:
        return f"this kernel or container does not allow network namespaces: {probe.stderr.strip()}"
    ip("netns", "del", name)
    return None


class Host:
    """An emulated host: `address`, `interface`, and a way to run commands on it."""

    def __init__(self, name, interface, address):
        self.name, self.interface, self.address = name, interface, address

    def command(self, *words):
        return ["ip", "netns", "exec", self.name, *map(str, words)]


@contextlib.contextmanager
def linked_hosts(rate="1gbit", network="10.77.0", interface=None):
    """Yields two hosts joined by a link of `rate` in each direction; skips with the reason if that is impossible.
    `interface` is the name of both ends; by default each has its own."""
    reason = why_no_namespaces()
    if reason:
        print(reason)
        pytest.skip(reason)
    tag = uuid.uuid4().hex[:6]
    hosts = [Host(f"rondo-{tag}-{i}", f"r{tag}{i}", f"{network}.{i + 1}") for i in range(2)]
    try:
        for host in hosts:
            ip("netns", "add", host.name)
        ip("link", "add", hosts[0].interface, "type", "veth", "peer", "name", hosts[1].interface)
        for host in hosts:
            ip("link", "set", host.interface, "netns", host.name)
            if interface:
                ip("-n", host.name, "link", "set", host.interface, "name", interface)
                host.interface = interface
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.interface)
            ip("-n", host.name, "link", "set", host.interface, "up")
            ip("-n", host.name, "link", "set", "lo", "up")
            # With a bucket smaller than several of the kernel's largest segments (64 KiB) TCP stalls.
            subprocess.run(host.command("tc", "qdisc", "add", "dev", host.interface, "root", "tbf", "rate", rate,
                                        "burst", "1mb", "latency", "200ms"), check=True)
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True)


class Job:
    """Commands that run concurrently, each on a host."""

    def __init__(self, commands, environment, tmp_path):
        self.processes = [subprocess.Popen(list(map(str, command)), env=environment | extra, cwd=tmp_path, text=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                          for command, extra in commands]

    def finish(self, seconds=120):
        results = []
        try:
            for process in self.processes:
                out, err = process.communicate(timeout=seconds)
                results.append((process.returncode, out, err))
        finally:
            for process in self.processes:
                process.kill()
        return results


def launchers(hosts, rondo_bin, *words, port, ranks=2, flags=()):
    """Returns the commands of `rondo run` on both hosts."""
    return [(host.command(rondo_bin / "rondo", "run", "--nnodes", 2, "--node-rank", number, "--master-addr",
                          hosts[0].address, "--master-port", port, "--interface", host.interface, "-n", ranks, *flags,
                          "--", *words), {}) for number, host in enumerate(hosts)]
