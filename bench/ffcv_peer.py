"""FFCV on the file of bench/loader.py, by an interpreter that has it: `bench/loader.py --ffcv PYTHON`.

With --pixels it writes the central parts of the first images instead, as uint8, in the file's order.
"""
import argparse
import json
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--size", type=int, required=True, help="pixels of a side")
parser.add_argument("--stages", choices=["crop", "cifar"], default="crop")
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--workers", type=int, required=True)
parser.add_argument("--pixels", help="a file to write")
a = parser.parse_args()

begun = time.perf_counter()
import numpy as np  # noqa: E402
from ffcv.fields.decoders import (CenterCropRGBImageDecoder, IntDecoder,  # noqa: E402
                                  RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder)
from ffcv.loader import Loader, OrderOption  # noqa: E402
from ffcv.transforms import (Cutout, NormalizeImage, RandomHorizontalFlip, RandomTranslate,  # noqa: E402
                             Squeeze, ToTensor, ToTorchImage)

imported = time.perf_counter()
MEAN, DEVIATION = 255 * np.array([0.485, 0.456, 0.406]), 255 * np.array([0.229, 0.224, 0.225])


def pipeline():
    if a.pixels:
        return [CenterCropRGBImageDecoder((a.size, a.size), 0.875), ToTensor()]
    normalised = [NormalizeImage(MEAN, DEVIATION, np.float32), ToTensor(), ToTorchImage(channels_last=False)]
    if a.stages == "cifar":
        return [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(padding=4),
                Cutout(8, tuple(int(one) for one in MEAN)), *normalised]
    return [RandomResizedCropRGBImageDecoder((a.size, a.size)), RandomHorizontalFlip(), *normalised]


loader = Loader(a.file, batch_size=a.batch, num_workers=a.workers, os_cache=True, drop_last=True, seed=1,
                order=OrderOption.SEQUENTIAL if a.pixels else OrderOption.RANDOM,
                pipelines={"image": pipeline(), "label": [IntDecoder(), ToTensor(), Squeeze()]})


def forever():
    while True:
        yield from loader


batches = forever()
images, labels = next(batches)
if a.pixels:
    images.numpy().tofile(a.pixels)
    sys.exit(0)
assert tuple(images.shape) == (a.batch, 3, a.size, a.size) and 0 <= labels.min() and labels.max() < 10
print(json.dumps({"decoder": "FFCV", "import_seconds": imported - begun,
                  "first_batch_seconds": time.perf_counter() - imported}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    for _ in range(asked["untimed"]):
        next(batches)
    seconds = []
    for _ in range(asked["batches"]):
        start = time.perf_counter()
        next(batches)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds}), flush=True)
