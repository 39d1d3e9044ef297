#!/usr/bin/env python3
"""The cost of perfectly overlapped communication between emulated hosts: processor time.

Two emulated hosts share a machine, and the kernel copies their messages on the cores that compute. This runs a float32
matrix product in a loop on each host. It alternates between no traffic and plain sockets that keep the link full in
both directions on the same core. It prints the slowdown of the products and the resulting bound of a training step: no
schedule is faster than its computation plus that loss. Needs root (network namespaces) and an idle machine.

  bench/overlap_floor.py                                  a step of the GPT of 25.5 M parameters
  bench/overlap_floor.py --bytes 50000000 --compute 0.5   0.5 s of computation, 50 MB each way
"""
import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

from harness import linked_hosts, parser_of

PORT = 29650
PIECE = 1 << 20


def compute():
    """Prints the time after each product until it is terminated."""
    import torch
    torch.set_num_threads(1)
    left, right = torch.randn(512, 512), torch.randn(512, 2048)
    while True:
        torch.mm(left, right)
        print(time.monotonic(), flush=True)


def exchange(listens, address):
    """Sends and receives as fast as the link allows, in two processes, until it is terminated."""
    if listens:
        listener = socket.create_server((address, PORT))
        connection, _ = listener.accept()
    else:
        for _ in range(100):
            try:
                connection = socket.create_connection((address, PORT))
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
    buffer = bytearray(PIECE)
    if os.fork() == 0:
        while connection.recv_into(buffer):
            pass
    else:
        while True:
            connection.sendall(buffer)


def on_each(hosts, role, *words):
    return [subprocess.Popen(host.command("taskset", "-c", number % os.cpu_count(), sys.executable, __file__, "--role", role,
                                          *words[number:number + 1]), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                             start_new_session=True, text=True) for number, host in enumerate(hosts)]


def end(processes):
    for process in processes:
        os.killpg(process.pid, 9)
    return [process.communicate()[0] for process in processes]


def slow_downs(rounds, seconds, rate):
    """Returns the slowdowns of the products by host, one per round."""
    with linked_hosts(rate) as hosts:
        products = on_each(hosts, "compute")
        time.sleep(3)
        windows = []
        for _ in range(rounds):
            begin = time.monotonic()
            time.sleep(seconds)
            quiet = (begin, time.monotonic())
            traffic = on_each(hosts, "exchange", f"listen:{hosts[0].address}", f"connect:{hosts[0].address}")
            time.sleep(1)  # interpreters start, TCP reaches its rate
            begin = time.monotonic()
            time.sleep(seconds)
            windows.append((quiet, (begin, time.monotonic())))
            end(traffic)
        result = []
        for output in end(products):
            stamps = [float(line) for line in output.split("\n")[:-1]]
            count = [[sum(begin <= stamp < stop for stamp in stamps) / (stop - begin) for begin, stop in pair] for pair in windows]
            result.append([quiet / busy for quiet, busy in count])
        return result


def main():
    parser = parser_of(__doc__, json_file=False)
    parser.add_argument("--bytes", type=float, default=4 * 25.5e6, help="what each host sends in a step (default: %(default)g)")
    parser.add_argument("--compute", type=float, default=1.09, help="seconds a step computes (default: %(default)g)")
    parser.add_argument("--rate", type=float, default=1, help="of the link, in Gbit/s (default: %(default)g)")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4, help="of each window")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("address", nargs="?", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role == "compute":
        compute()
    if arguments.role == "exchange":
        role, _, address = arguments.address.partition(":")
        exchange(role == "listen", address)
    by_host = slow_downs(arguments.rounds, arguments.seconds, f"{arguments.rate:g}gbit")
    for number, values in enumerate(by_host):
        print(f"host {number}: products take {statistics.median(values):.3f} x as long under traffic "
              f"(rounds: {', '.join(f'{value:.3f}' for value in values)})")
    slow_down = statistics.median(value for values in by_host for value in values)
    link = arguments.bytes * 8 / (arguments.rate * 1e9)
    bound = max(arguments.compute, link)
    # While the link is busy the computation has only 1 / slow_down of its core.
    done_meanwhile = min(arguments.compute, link / slow_down)
    floor = link + (arguments.compute - done_meanwhile)
    print(f"a step of {arguments.compute:g} s of computation and {link:.3g} s of link: bound {bound:.3g} s, with perfect overlap "
          f"{floor:.3g} s, {floor / bound:.2f} of the bound")


if __name__ == "__main__":
    main()
