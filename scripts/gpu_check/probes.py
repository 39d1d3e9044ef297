"""Abilities of a card, its driver and libtorch, asked through PyTorch; a program of its own, since what it asks may end the process.

    python3 probes.py        a JSON line for each probe: name, status, text, seconds, figures
"""
import json
import mmap
import os
import pathlib
import re
import tempfile
import time

import torch
import torch.distributed

MIB = 1 << 20


def driver_version():
    try:
        text = pathlib.Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "unknown"
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return found[0] if found else "unknown"


def card():
    if not torch.cuda.is_available():
        raise Skip(f"torch {torch.__version__} sees no CUDA device")
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info(0)
    figures = {"cards": torch.cuda.device_count(), "name": properties.name, "memory_bytes": total, "free_bytes": free,
               "capability": f"{properties.major}.{properties.minor}", "processors": properties.multi_processor_count,
               "driver": driver_version()}
    return f"{figures['cards']} x {figures['name']}, {total / 2**30:.1f} GiB, driver {figures['driver']}", figures


def versions():
    figures = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        figures["cudnn"] = torch.backends.cudnn.version()
    if torch.cuda.is_available() and torch.distributed.is_nccl_available():
        figures["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return ", ".join(f"{name} {value}" for name, value in figures.items()), figures


def streams():
    """An event orders a stream behind another one's writes."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    values = torch.zeros(64 * MIB, device="cuda")
    written = torch.cuda.Event()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        for _ in range(50):
            values.add_(1)
        written.record(side)
    main.wait_event(written)
    least = values.min().item()
    if least != 50:
        raise Wrong(f"read {least} behind an event that follows 50 additions of 1")
    return "an event orders one stream behind another", {}


def timed(operation, times=5):
    """The least of some times, on the device's clock."""
    least = float("inf")
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        operation()
        end.record()
        end.synchronize()
        least = min(least, begin.elapsed_time(end) / 1000)
    return least


def copies():
    device = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    figures = {}
    for kind, host in (("pinned", torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)),
                       ("pageable", torch.zeros(256 * MIB, dtype=torch.uint8))):
        figures[f"{kind}_to_device_gb_s"] = device.nbytes / timed(lambda: device.copy_(host, non_blocking=True)) / 1e9
        figures[f"{kind}_to_host_gb_s"] = device.nbytes / timed(lambda: host.copy_(device, non_blocking=True)) / 1e9
    return ", ".join(f"{name[:-5].replace('_', ' ')} {value:.1f} GB/s" for name, value in figures.items()), figures


def registered_memory():
    """Shared memory as the native engine's arena, registered with the driver, is pinned memory to libtorch."""
    descriptor = os.memfd_create("gpu-check")
    os.ftruncate(descriptor, 64 * MIB)
    memory = mmap.mmap(descriptor, 64 * MIB)
    os.close(descriptor)
    host = torch.frombuffer(memory, dtype=torch.float32)
    code = int(torch.cuda.cudart().cudaHostRegister(host.data_ptr(), host.nbytes, 0))
    if code != 0:
        raise Wrong(f"cudaHostRegister: error {code}")
    try:
        pinned = host.is_pinned()
        host.fill_(3)
        total = host.to("cuda", non_blocking=True).double().sum().item()
    finally:
        torch.cuda.cudart().cudaHostUnregister(host.data_ptr())
    if not pinned or total != 3 * host.numel():
        raise Wrong(f"is_pinned: {pinned}, sum of {host.numel()} threes on the device: {total}")
    return "cudaHostRegister of a memfd; libtorch takes it for pinned", {}


def nccl_of_one():
    if not torch.distributed.is_nccl_available():
        raise Skip("this torch has no NCCL")
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.set_device(0)
        torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            values = torch.full((MIB,), 2.0, device="cuda")
            torch.distributed.all_reduce(values)
            total = values.sum().item()
        finally:
            torch.distributed.destroy_process_group()
    if total != 2 * MIB:
        raise Wrong(f"the all-reduce of {MIB} twos adds up to {total}")
    return "ProcessGroupNCCL of one rank", {}


def products():
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    rate = 2 * 8192**3 / timed(lambda: a @ b, 10)
    return f"8192 x 8192 bfloat16 products: {rate / 1e12:.0f} TFLOP/s", {"flops": rate}


class Skip(Exception):
    """The reason why a probe cannot run here."""


class Wrong(Exception):
    """A wrong result of a probe, as text."""


def main():
    for probe in (card, versions, streams, copies, registered_memory, nccl_of_one, products):
        begin = time.monotonic()
        figures = {}
        try:
            if probe not in (card, versions) and not torch.cuda.is_available():
                raise Skip("no CUDA device")
            text, figures = probe()
            status = "ok"
        except Skip as reason:
            status, text = "skipped", str(reason)
        except Exception as error:  # any: the probe's answer is that it failed
            status, text = "WRONG", f"{type(error).__name__}: {error}"
        print(json.dumps({"name": probe.__name__, "status": status, "text": text, "seconds": time.monotonic() - begin,
                          "figures": figures}), flush=True)


if __name__ == "__main__":
    main()
