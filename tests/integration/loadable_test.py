"""The loader can start what was linked."""
import re
import subprocess

PAGE = 4096


def segments(program, kind):
    """[(address, bytes in memory)] of the program headers of a kind."""
    out = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout
    rows = [re.split(r"\s+", line.strip()) for line in out.splitlines()]
    return [(int(row[2], 16), int(row[5], 16)) for row in rows if row[0] == kind]


def test_relro_begins_in_memory_that_is_mapped(rondo_bin):
    """Else a program ends before main(), and whether it does depends on the size of its code alone."""
    programs = [path for path in rondo_bin.iterdir() if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert programs
    wrong = []
    for program in programs:
        mapped = [(start // PAGE * PAGE, start + size) for start, size in segments(program, "LOAD")]
        for start, _ in segments(program, "GNU_RELRO"):
            if not any(first <= start // PAGE * PAGE < end for first, end in mapped):
                wrong.append(program.name)
    assert wrong == []
