#!/usr/bin/env python3
"""Writes image_reference.json: small files of all forms that Pillow writes, and Pillow's pixels of a part of each. Needs Pillow.

Also read by tests/integration/data_test.py, which writes the files into folders and trains on them.
"""
import io
import json
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

BOX, SIZE = (13, 6, 77, 54), 16


def picture(width=96, height=64):
    y, x = np.mgrid[0:height, 0:width]
    red = 128 + 100 * np.sin(x / 9) * np.cos(y / 13)
    green = 255 * x / width
    blue = np.where((x - 50) ** 2 + (y - 30) ** 2 < 400, 220, 40) + y / 4
    return Image.fromarray(np.stack([red, green, blue], axis=2).clip(0, 255).astype(np.uint8))


def encoded(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png_chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def handmade_png(values, interlaced=False):
    """Returns a PNG file of a form that Pillow cannot write: grey or RGB of 8 or 16 bits, optionally interlaced.

    Each row is stored minus the row above (filter Up).
    """
    height, width = values.shape[:2]
    rows = b""
    for x, y, across, down in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        part = values[y::down, x::across]
        part = part.astype(part.dtype.newbyteorder(">"))
        encoded = np.frombuffer(part.tobytes(), np.uint8).reshape(part.shape[0], -1)
        above = np.concatenate([np.zeros_like(encoded[:1]), encoded[:-1]])
        rows += b"".join(b"\2" + row.tobytes() for row in encoded - above)
    header = struct.pack(">IIBBBBB", width, height, 8 * values.itemsize, 0 if values.ndim == 2 else 2, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(rows, 9)) +
            png_chunk(b"IEND", b""))


def with_gamma(png, gamma):
    after_header = 33
    return png[:after_header] + png_chunk(b"gAMA", struct.pack(">I", gamma)) + png[after_header:]


def files():
    rgb = picture()
    alpha = rgb.copy()
    alpha.putalpha(Image.linear_gradient("L").resize(rgb.size))
    return {
        "plain.jpg": encoded(rgb, "JPEG", quality=90),
        "whole_chroma.jpg": encoded(rgb, "JPEG", quality=90, subsampling=0),
        "progressive.jpg": encoded(rgb, "JPEG", quality=85, progressive=True),
        "grey.jpg": encoded(rgb.convert("L"), "JPEG", quality=90),
        "cmyk.jpg": encoded(rgb.convert("CMYK"), "JPEG", quality=90),
        "plain.png": encoded(rgb, "PNG"),
        "transparent.png": encoded(alpha, "PNG"),
        "palette.png": encoded(rgb.quantize(64), "PNG"),
        "grey.png": encoded(rgb.convert("L"), "PNG"),
        "gamma.png": with_gamma(encoded(rgb, "PNG"), 100000),
        "sixteen.png": handmade_png(np.asarray(rgb).astype(np.uint16) * 256 + 77),
        "interlaced.png": handmade_png(np.asarray(rgb.convert("L")), interlaced=True),
        "grey16.png": handmade_png(np.asarray(rgb.convert("L")).astype(np.uint16) * 257),
    }


def as_rgb(name, content):
    image = Image.open(io.BytesIO(content))
    if name == "grey16.png":  # Pillow clips these at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB")


def reference():
    images = []
    for name, content in files().items():
        part = as_rgb(name, content).crop(BOX).resize((SIZE, SIZE), Image.BILINEAR)
        images.append({"name": name, "file": content.hex(), "pixels": np.asarray(part).transpose(2, 0, 1).flatten().tolist()})
    left, top, right, bottom = BOX
    return json.dumps({"width": 96, "height": 64, "box": [left, top, right - left, bottom - top], "size": SIZE,
                       "images": images}) + "\n"


if __name__ == "__main__":
    (pathlib.Path(__file__).parent / "image_reference.json").write_text(reference())
