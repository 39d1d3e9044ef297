"""Emulated hosts: network namespaces on a bridge in a separate namespace."""
import contextlib
import subprocess
import uuid


def ip(*words):
    return subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True).stdout


class Host:
    """An emulated host. `name` is that of its namespace; its only link has the same name on all hosts."""

    interface = "eth0"

    def __init__(self, name, switch, number):
        self.name, self.switch, self.port, self.address = name, switch, f"p{number}", f"10.78.0.{number + 1}"

    def command(self, *words):
        return ["ip", "netns", "exec", self.name, *map(str, words)]

    def processes(self):
        return list(map(int, ip("netns", "pids", self.name).split()))

    def cut(self):
        """Disconnects the host in both directions, without a notification at either end."""
        ip("-n", self.switch, "link", "set", self.port, "nomaster")

    def join(self):
        ip("-n", self.switch, "link", "set", self.port, "master", "bridge")


@contextlib.contextmanager
def emulated(count):
    """Yields `count` hosts that reach each other; a single host is this machine."""
    if count == 1:
        yield []
        return
    tag = uuid.uuid4().hex[:6]
    switch = f"rondo-chaos-{tag}"
    hosts = [Host(f"rondo-chaos-{tag}-{number}", switch, number) for number in range(count)]
    try:
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for host in hosts:
            ip("netns", "add", host.name)
            ip("-n", switch, "link", "add", host.port, "type", "veth", "peer", "name", host.interface, "netns", host.name)
            ip("-n", switch, "link", "set", host.port, "master", "bridge", "up")
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.interface)
            ip("-n", host.name, "link", "set", host.interface, "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for name in [host.name for host in hosts] + [switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
