"""The dynamic loader can start the linked programs."""
import re
import subprocess

PAGE = 4096


def readelf(*words):
    return subprocess.run(["readelf", *words], capture_output=True, text=True, check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout


def programs_of(folder):
    programs = [path for path in folder.iterdir() if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert programs
    return programs


def segments(program, kind):
    """Returns [(address, bytes in memory)] of the program headers of a kind."""
    out = readelf("-lW", program)
    rows = [re.split(r"\s+", line.strip()) for line in out.splitlines()]
    return [(int(row[2], 16), int(row[5], 16)) for row in rows if row[0] == kind]


def test_relro_begins_in_memory_that_is_mapped(rondo_bin):
    """Otherwise a program ends before main(); whether it does depends only on the size of its code."""
    wrong = []
    for program in programs_of(rondo_bin):
        mapped = [(start // PAGE * PAGE, start + size) for start, size in segments(program, "LOAD")]
        for start, _ in segments(program, "GNU_RELRO"):
            if not any(first <= start // PAGE * PAGE < end for first, end in mapped):
                wrong.append(program.name)
    assert wrong == []


def test_no_program_is_linked_with_cuda_or_nccl(rondo_bin):
    """Programs load these libraries when a device is requested; otherwise trainings on the CPU would pay for loading
    them."""
    needed = {program.name: re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", program)) for program in programs_of(rondo_bin)}
    assert "libtorch_cpu.so" in needed["rondo-train-worker"]
    wanted_late = re.compile(r"lib(torch_cuda|c10_cuda|nccl|cuda)\.so")
    assert {name: found for name, libraries in needed.items() if (found := [each for each in libraries if wanted_late.match(each)])} == {}
