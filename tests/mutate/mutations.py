"""Ways to damage a file. Each takes its bytes and a random.Random, and returns other bytes."""
import ctypes
import ctypes.util
import json
import os
import re

NUMBERS = [b"-1", b"0", b"1.5", b"1e308", b"-1e308", b"1e999", b"9223372036854775807", b"-9223372036854775808",
           b"18446744073709551615", b"99999999999999999999999999", b"4294967296", b"2147483648", b"0.1e-320"]
TEXTS = [b'""', b"null", b"true", b"[]", b"{}", b'"\\u0000"', b'"\\u001b[2J"', b'"' + b"a" * 100_000 + b'"', b"NaN"]


def flip(data, random):
    data = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 8])):
        if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def cut(data, random):
    return data[:random.randrange(len(data) + 1)]


def drop(data, random):
    begin = random.randrange(len(data) + 1)
    return data[:begin] + data[begin + random.randrange(1, 64):]


def repeat(data, random):
    begin = random.randrange(len(data) + 1)
    piece = data[begin:begin + random.randrange(1, 256)]
    return data[:begin] + piece * random.choice([2, 3, 1000]) + data[begin:]


def swap(data, random):
    places = sorted(random.randrange(len(data) + 1) for _ in range(4))
    a, b, c, d = places
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def garbage(data, random):
    begin = random.randrange(len(data) + 1)
    return data[:begin] + random.randbytes(random.choice([1, 4, 64, 4096])) + data[begin + 4:]


def number(data, random):
    """Replaces a number by another one."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?", data))
    if not found:
        return flip(data, random)
    place = random.choice(found)
    return data[:place.start()] + random.choice(NUMBERS) + data[place.end():]


def value(data, random):
    """Replaces a number or text by another JSON value."""
    found = list(re.finditer(rb'(?<=[:\[,])\s*("[^"]*"|-?\d[\d.eE+-]*|true|false|null)', data))
    if not found:
        return garbage(data, random)
    place = random.choice(found)
    return data[:place.start()] + random.choice(TEXTS + NUMBERS) + data[place.end():]


def nest(data, random):
    """Nests tens of thousands of lists or objects, as a whole or in place of a value."""
    depth = random.choice([65, 5_000, 60_000, 200_000])
    opening, closing = random.choice([(b"[", b"]"), (b'{"a":', b"}")])
    deep = opening * depth + b"1" + closing * depth
    found = list(re.finditer(rb"(?<=[:\[,])\s*-?\d+", data))
    if not found or random.random() < 0.3:
        return deep
    place = random.choice(found)
    return data[:place.start()] + deep + data[place.end():]


def empty(data, random):
    return b""


BINARY = [flip, cut, drop, repeat, swap, garbage, empty]
TEXT = [flip, cut, drop, repeat, swap, garbage, number, empty]
JSON = TEXT + [number, value, value, nest]


class _Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def checksum(data):
    """Returns XXH3-128 in the manifests' format."""
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_128bits.restype = _Hash
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    result = library.XXH3_128bits(data, len(data))
    return f"{result.high:016x}{result.low:016x}"


def seal(text):
    """Returns a manifest's text with the correct checksum."""
    zeroed = re.sub(rb'"checksum": "[0-9a-f]{32}"\n}\n$', b'"checksum": "' + b"0" * 32 + b'"\n}\n', text)
    return zeroed.replace(b'"checksum": "' + b"0" * 32, b'"checksum": "' + checksum(zeroed).encode())


def reseal(checkpoint):
    """Updates the manifest of a directory to its files, as an attacker would to hide the damage."""
    path = checkpoint / "manifest.json"
    manifest = json.loads(path.read_text())
    for record in manifest["files"]:
        file = checkpoint / record["name"]
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            record["bytes"], record["xxh3_128"] = len(content), checksum(content)
    path.write_bytes(seal(json.dumps(manifest, indent=1).encode() + b"\n"))


def replace_file(path, random):
    """Replaces a file by something else; returns its kind."""
    path.unlink()
    kind = random.choice(["pipe", "link to nowhere", "link to itself", "directory", "device", "nothing"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to nowhere":
        path.symlink_to("nowhere")
    elif kind == "link to itself":
        path.symlink_to(path.name)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    return kind
