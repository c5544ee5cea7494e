"""The peers of bench/loader: PyTorch's DataLoader on the same file of images, decoded by torchvision, torchcodec or Pillow,
and for tokens nanoGPT's batches of a numpy.memmap.

torchvision and torchcodec of PyPI load only beside torch of PyPI, which is built for CUDA and runs without it. Pillow also
resizes what it decodes, and the parts are drawn as torchvision's RandomResizedCrop draws them.
"""
import argparse
import io
import json
import math
import random
import resource
import struct
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def by_torchvision(size):
    from torchvision.io import ImageReadMode, decode_jpeg
    return by_transforms(size, lambda levels: decode_jpeg(levels, mode=ImageReadMode.RGB))


def by_torchcodec(size):
    from torchcodec.decoders import decode_image
    return by_transforms(size, lambda levels: decode_image(levels))


def by_transforms(size, decode):
    from torchvision.transforms import v2
    transform = v2.Compose([v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip(),
                            v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)])

    def read(stored):
        stream, is_jpeg, width, height = stored
        levels = torch.frombuffer(bytearray(stream), dtype=torch.uint8)
        return transform(decode(levels) if is_jpeg else levels.view(height, width, 3).permute(2, 0, 1))
    return read


def random_part(width, height):
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = random.randint(0, width - w), random.randint(0, height - h)
            return x, y, x + w, y + h
    return 0, 0, width, height


def by_pillow(size):
    import numpy
    from PIL import Image
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))

    def read(stored):
        stream, is_jpeg, width, height = stored
        image = Image.open(io.BytesIO(stream)).convert("RGB") if is_jpeg else \
            Image.frombuffer("RGB", (width, height), stream)
        image = image.crop(random_part(*image.size)).resize((size, size), Image.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        levels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
        return levels.to(torch.float32).div_(255).sub_(mean).div_(deviation)
    return read


def of_cifar(size):
    """Flip, moved by up to 4 pixels, 8 x 8 of them cut out, normalised: what moves and fills has the mean colour."""
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))

    def read(stored):
        levels = torch.frombuffer(bytearray(stored[0]), dtype=torch.uint8).view(size, size, 3).permute(2, 0, 1)
        image = torch.nn.functional.pad(levels.to(torch.float32).div_(255).sub_(mean).div_(deviation), (4, 4, 4, 4))
        x, y = random.randint(0, 8), random.randint(0, 8)
        image = image[:, y:y + size, x:x + size]
        image = image.flip(2) if random.random() < 0.5 else image.clone()
        x, y = random.randint(0, size - 8), random.randint(0, size - 8)
        image[:, y:y + 8, x:x + 8] = 0
        return image
    return read


DECODERS = {"torchvision": by_torchvision, "torchcodec": by_torchcodec, "Pillow": by_pillow}


def decoders_here():
    """Those that load."""
    found = []
    for name, reader in DECODERS.items():
        try:
            reader(8)
            found.append(name)
        except (ImportError, OSError, RuntimeError):
            pass
    return found


class Images(Dataset):
    """The images of a .beton file with the fields image and label: bytes, whether a JPEG, width, height."""

    def __init__(self, path, read):
        with open(path, "rb") as file:
            self.content = file.read()
        _, fields, _, count, table = struct.unpack_from("<HHIQQ", self.content)
        begin = 24 + 1041 * fields
        self.labels = [struct.unpack_from("<q", self.content, begin + 24 * i + 16)[0] for i in range(count)]
        self.kinds = [struct.unpack_from("<BHH", self.content, begin + 24 * i) for i in range(count)]
        self.streams = {sample: (at, bytes_) for sample, at, bytes_ in
                        struct.iter_unpack("<3Q", memoryview(self.content)[table:])}
        self.read = read

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        at, size = self.streams[index]
        mode, width, height = self.kinds[index]
        return self.read((self.content[at:at + size], mode == 0, width, height)), self.labels[index]


def token_batches(path, length, batch):
    """As nanoGPT's get_batch: random places, inputs and targets as int64."""
    import numpy
    while True:
        ids = numpy.memmap(path, dtype=numpy.uint16, mode="r")
        places = torch.randint(len(ids) - length, (batch,))
        yield tuple(torch.stack([torch.from_numpy(ids[at + shift:at + shift + length].astype(numpy.int64))
                                 for at in places]) for shift in (0, 1))


def forever(loader):
    while True:
        yield from loader


def cpu_seconds():
    return sum(part.ru_utime + part.ru_stime for part in
               (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?")
    parser.add_argument("--decoders", action="store_true", help="print those that load, and nothing else")
    parser.add_argument("--decoder", choices=DECODERS, default="Pillow")
    parser.add_argument("--size", type=int, help="pixels of a side")
    parser.add_argument("--stages", choices=["crop", "cifar"], default="crop")
    parser.add_argument("--tokens", type=int, help="of a sample; the file has ids of 2 bytes")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--workers", type=int)
    a = parser.parse_args()
    if a.decoders:
        return print(*decoders_here())
    torch.set_num_threads(1)
    begun = time.perf_counter()
    if a.tokens:
        name, batches = "numpy", token_batches(a.file, a.tokens, a.batch)
        inputs, targets = next(batches)
        assert inputs.shape == (a.batch, a.tokens) and inputs[:, 1:].equal(targets[:, :-1])
    else:
        name, read = ("torch", of_cifar(a.size)) if a.stages == "cifar" else (a.decoder, DECODERS[a.decoder](a.size))
        loader = DataLoader(Images(a.file, read), a.batch, shuffle=True, drop_last=True, num_workers=a.workers,
                            persistent_workers=a.workers > 0)
        batches = forever(loader)
        images, labels = next(batches)
        first = time.perf_counter() - begun
        assert images.shape == (a.batch, 3, a.size, a.size) and images.dtype == torch.float32
        assert 0 <= labels.min() and labels.max() < 10
    print(json.dumps({"decoder": name, "first_batch_seconds": None if a.tokens else first}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        for _ in range(asked["untimed"]):
            next(batches)
        cpu, seconds = cpu_seconds(), []
        for _ in range(asked["batches"]):
            start = time.perf_counter()
            next(batches)
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds() - cpu}), flush=True)


if __name__ == "__main__":
    main()
