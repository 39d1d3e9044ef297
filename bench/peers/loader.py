"""PyTorch's DataLoader over a folder of JPEGs, as in training on ImageNet, for `rondo bench-dev loader`.

    loader.py make FOLDER COUNT                        draws JPEGs of 500 x 375 pixels, in four classes
    loader.py run FOLDER WORKERS BATCH ANSWER.json     reads all of them twice and measures the second time

torchvision's ImageFolder with RandomResizedCrop, flip, ToTensor and Normalize reads them if it is installed. Otherwise
Pillow and torch perform the same steps: files are opened, decoded, cropped, resized and mirrored by the same functions
of Pillow that torchvision calls.
"""
import json
import math
import pathlib
import random
import sys
import time

import numpy as np
import PIL
import torch
from leaving import leave
from PIL import Image
from torch.utils.data import DataLoader, Dataset

SIZE = 224
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def make(folder, count):
    """Writes images of noise at several scales, which is about as hard to encode as a photograph."""
    numbers = np.random.default_rng(0)
    for i in range(int(count)):
        target = pathlib.Path(folder) / f"class{i % 4}"
        target.mkdir(parents=True, exist_ok=True)
        pixels = np.zeros((375, 500, 3))
        for scale, strength in ((125, 60), (25, 30), (5, 20), (1, 6)):
            coarse = numbers.normal(size=(375 // scale + 1, 500 // scale + 1, 3))
            small = Image.fromarray(((coarse + 4) * 32).clip(0, 255).astype(np.uint8))
            pixels += (np.asarray(small.resize((500, 375), Image.BILINEAR), dtype=float) / 32 - 4) * strength
        Image.fromarray((pixels + 128).clip(0, 255).astype(np.uint8)).save(target / f"{i:05d}.jpg", quality=90)


class Folder(Dataset):
    """ImageFolder and its transforms, without torchvision."""

    def __init__(self, folder):
        self.classes = sorted(path.name for path in pathlib.Path(folder).iterdir() if path.is_dir())
        self.samples = [(path, label) for label, name in enumerate(self.classes)
                        for path in sorted((pathlib.Path(folder) / name).rglob("*.jpg"))]
        self.mean = torch.tensor(MEAN).view(3, 1, 1)
        self.deviation = torch.tensor(DEVIATION).view(3, 1, 1)

    def __len__(self):
        return len(self.samples)

    @staticmethod
    def crop_of(width, height):
        for _ in range(10):
            area = width * height * random.uniform(0.08, 1)
            aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left, top = random.randint(0, width - w), random.randint(0, height - h)
                return left, top, left + w, top + h
        side = min(width, height)
        return (width - side) // 2, (height - side) // 2, (width + side) // 2, (height + side) // 2

    def __getitem__(self, index):
        path, label = self.samples[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        image = image.crop(self.crop_of(*image.size)).resize((SIZE, SIZE), Image.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().to(torch.float32).div(255)
        return tensor.sub_(self.mean).div_(self.deviation), label


def dataset(folder):
    """Returns the data set and the name of its reader."""
    try:
        import torchvision
        from torchvision import datasets, transforms
    except ImportError:
        return Folder(folder), f"Pillow {PIL.__version__}"
    steps = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
             transforms.Normalize(MEAN, DEVIATION)]
    return datasets.ImageFolder(folder, transforms.Compose(steps)), f"torchvision {torchvision.__version__}"


def run(folder, workers, batch, answer):
    torch.set_num_threads(1)
    images, reader = dataset(folder)
    loader = DataLoader(images, batch_size=int(batch), shuffle=True, num_workers=int(workers), persistent_workers=True)
    for _ in range(2):
        samples = bytes_read = 0
        begin = time.perf_counter()
        for pixels, labels in loader:
            samples += len(labels)
            bytes_read += pixels.nbytes + labels.nbytes
        elapsed = time.perf_counter() - begin
    pathlib.Path(answer).write_text(json.dumps({"samples_per_s": samples / elapsed, "bytes_per_s": bytes_read / elapsed,
                                                "reader": reader}))


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](*sys.argv[2:])
    leave()
