#!/usr/bin/env python3
"""Pillow, and torchvision where it is installed, on what bench_data does: decode and resize, one process, one thread.

   bench_data.py FOLDER HxW [SECONDS]
"""
import json
import os
import sys
import time


def files(folder):
    for place, _, names in os.walk(folder):
        for name in names:
            if name.lower().endswith((".jpg", ".jpeg", ".png")):
                yield os.path.join(place, name)


def measure(name, work, paths, seconds):
    begin, cpu, count = time.monotonic(), time.process_time(), 0
    while time.monotonic() - begin < seconds:
        work(paths[count % len(paths)])
        count += 1
    print(json.dumps({"with": name, "images": count, "images_per_second": count / (time.monotonic() - begin),
                      "images_per_cpu_second": count / (time.process_time() - cpu)}))


def main():
    folder, size = sys.argv[1], tuple(int(side) for side in sys.argv[2].split("x"))
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 5
    paths = sorted(files(folder))
    try:
        import numpy
        from PIL import Image

        def pillow(path, draft):
            image = Image.open(path)
            if draft:
                image.draft("RGB", size[::-1])
            numpy.asarray(image.convert("RGB").resize(size[::-1], Image.BILINEAR)).transpose(2, 0, 1).copy()

        measure("Pillow", lambda path: pillow(path, False), paths, seconds)
        measure("Pillow with draft()", lambda path: pillow(path, True), paths, seconds)
    except ImportError:
        print("no Pillow", file=sys.stderr)
    try:
        import torch
        import torchvision
        from torchvision.transforms import v2

        torch.set_num_threads(1)

        def tv(path):
            v2.functional.resize(torchvision.io.read_image(path, torchvision.io.ImageReadMode.RGB), list(size),
                                 antialias=True)

        measure("torchvision", tv, paths, seconds)
    except ImportError:
        print("no torchvision", file=sys.stderr)


main()
