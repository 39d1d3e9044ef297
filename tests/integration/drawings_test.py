"""The drawings of the documents: readable on light and dark pages, and on a phone."""
import pathlib
import re
import xml.etree.ElementTree

import pytest

IMAGES = sorted((pathlib.Path(__file__).resolve().parents[2] / "docs" / "images").glob("*.svg"))
PHONE = 388  # pixels of a page's text at a width of 420
SMALLEST_TEXT = 7.5  # pixels


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_drawings_are_readable_dark_and_narrow(path):
    text = path.read_text()
    drawing = xml.etree.ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text and 'class="page"' in text, "colours for dark pages, and a background"
    width, height = (float(value) for value in drawing.attrib["viewBox"].split()[2:])
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', text)]
    assert min(sizes) * min(1, PHONE / width) >= SMALLEST_TEXT
    for label in drawing.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(label.attrib["x"]) <= width and 0 <= float(label.attrib["y"]) <= height, label.text


def test_the_picture_of_the_report_is_small(repository):
    assert (repository / "docs" / "images" / "report.png").stat().st_size < 300_000
