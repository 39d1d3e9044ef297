"""Weights as safetensors files, written and read byte by byte, as another program would."""
import json
import struct

import numpy

DTYPES = {"float32": "F32", "int64": "I64"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    names = {code: name for name, code in DTYPES.items()}
    return {name: numpy.frombuffer(content[8 + length:][slice(*entry["data_offsets"])], names[entry["dtype"]])
            .reshape(entry["shape"]) for name, entry in header.items()}
