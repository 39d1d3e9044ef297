#!/usr/bin/env python3
"""Writes image_reference.json: small files of all forms that Pillow writes, and what Pillow makes of a part of each. Needs Pillow.

Also read by tests/integration/data_test.py, which writes the files into folders and trains on them.
"""
import io
import json
import pathlib

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
    }


def reference():
    images = []
    for name, content in files().items():
        part = Image.open(io.BytesIO(content)).convert("RGB").crop(BOX).resize((SIZE, SIZE), Image.BILINEAR)
        images.append({"name": name, "file": content.hex(), "pixels": np.asarray(part).transpose(2, 0, 1).flatten().tolist()})
    left, top, right, bottom = BOX
    return json.dumps({"width": 96, "height": 64, "box": [left, top, right - left, bottom - top], "size": SIZE,
                       "images": images}) + "\n"


if __name__ == "__main__":
    (pathlib.Path(__file__).parent / "image_reference.json").write_text(reference())
