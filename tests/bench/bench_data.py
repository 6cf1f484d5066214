#!/usr/bin/env python3
"""Image loading compared with torchvision and Pillow, in alternating rounds.

   bench_data.py FOLDER [--bench build/release/bench/bench_data] [--crop 224] [--threads 2] [--rounds 5] [--seconds 4]

FOLDER/CLASS/NAME.jpg -> a random resized crop, randomly mirrored, normalized, in batches of 64 float32 images. Each round runs
these programs in order, each for the given seconds after a warm-up:
  gradpool      bench_data FOLDER crop=CROP: the loader with --threads threads, slots as float
  decoder       bench_data FOLDER decode: the same threads; libjpeg-turbo decodes each whole image (line by line with
                jpeg_read_scanlines into one buffer, default settings, RGB) and discards it
  torchvision   torchvision.io.decode_jpeg(read_file) + transforms.v2 in a DataLoader with --threads workers
  tv threads    the same in --threads threads of one process, without a DataLoader
  Pillow        Image.open + transforms.v2 on PIL images (ToImage, ToDtype, Normalize) in a DataLoader
Prints medians of images per second by the wall clock and by CPU time (all processes and threads), and gradpool's ratio to each.
On a loaded machine only the CPU time ratios are meaningful.
--make FOLDER first creates 500x375 JPEGs (quality 90) from the PNG files in another folder.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import statistics
import subprocess
import sys
import time

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BATCH = 64


def make(source, folder):
    from PIL import Image

    os.makedirs(os.path.join(folder, "all"), exist_ok=True)
    for number, path in enumerate(sorted(glob.glob(os.path.join(source, "**", "*.png"), recursive=True))):
        image = Image.open(path).convert("RGB").resize((500, 375), Image.BICUBIC)
        image.save(os.path.join(folder, "all", "%06d.jpg" % number), quality=90)


def paths_of(folder):
    return sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names
                  if name.lower().endswith((".jpg", ".jpeg")))


class Images:
    """An endless list, for DataLoader."""

    def __init__(self, paths, load):
        self.paths, self.load = paths, load

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        return self.load(self.paths[index % len(self.paths)])


def transforms(crop, from_pil):
    import torch
    from torchvision.transforms import v2

    steps = [v2.RandomResizedCrop(crop, antialias=True), v2.RandomHorizontalFlip()]
    if from_pil:
        steps.append(v2.ToImage())
    return v2.Compose(steps + [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])


def loader_of(kind, crop):
    import torchvision
    from PIL import Image

    change = transforms(crop, kind == "Pillow")
    if kind == "Pillow":
        return lambda path: change(Image.open(path).convert("RGB"))
    mode = torchvision.io.ImageReadMode.RGB
    return lambda path: change(torchvision.io.decode_jpeg(torchvision.io.read_file(path), mode=mode))


def count_batches(batches, seconds):
    """Return images per second of an endless iterator, after two warm-up batches."""
    next(batches), next(batches)
    begin, count = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        count += len(next(batches))
    return count / (time.monotonic() - begin)


def by_threads(load, paths, threads):
    import torch

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        waiting, at = [], 0
        while True:
            while len(waiting) < 3 * BATCH:
                waiting.append(pool.submit(load, paths[at % len(paths)]))
                at += 1
            yield torch.stack([one.result() for one in waiting[:BATCH]])
            del waiting[:BATCH]


def child(kind, folder, crop, threads, seconds):
    """Measure in this child process; the parent reads the CPU time of the child and its workers."""
    import torch

    torch.set_num_threads(1)
    load, paths = loader_of("Pillow" if kind == "Pillow" else "torchvision", crop), paths_of(folder)
    if kind == "tv threads":
        batches = by_threads(load, paths, threads)
    else:
        batches = iter(torch.utils.data.DataLoader(Images(paths, load), batch_size=BATCH, num_workers=threads))
    next(batches)
    used, images, begin = cpu_of(os.getpid()), 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        images += len(next(batches))
    seconds, used = time.monotonic() - begin, cpu_of(os.getpid()) - used
    print(json.dumps({"images_per_second": images / seconds, "images_per_cpu_second": images / used}), flush=True)
    os._exit(0)


def cpu_of(pid):
    """Return the CPU seconds of a running process and its children, from /proc."""
    total = 0.0
    for path in ["/proc/%d" % pid] + ["/proc/%s" % one for one in
                                      open("/proc/%d/task/%d/children" % (pid, pid)).read().split()]:
        fields = open(path + "/stat").read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(kind, options):
    if kind in ("gradpool", "decoder"):
        what = "crop=%d" % options.crop if kind == "gradpool" else "decode"
        command = [options.bench, options.folder, what, str(options.threads), str(options.seconds)]
    else:
        command = [sys.executable, os.path.abspath(__file__), options.folder, "--child", kind, "--crop", str(options.crop),
                   "--threads", str(options.threads), "--seconds", str(options.seconds)]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return answer["images_per_second"], answer["images_per_cpu_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--bench", default="build/release/bench/bench_data")
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--make")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        child(options.child, options.folder, options.crop, options.threads, options.seconds)
    if options.make:
        make(options.make, options.folder)
    kinds = ["gradpool", "decoder", "torchvision", "tv threads", "Pillow"]
    seen = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind in kinds:
            seen[kind].append(measure(kind, options))
    best = {kind: [statistics.median(one[i] for one in seen[kind]) for i in range(2)] for kind in kinds}
    print("%-12s %12s %18s %14s %14s" % ("", "images/s", "images/CPU second", "gradpool, wall", "CPU time"))
    for kind in kinds:
        ratios = [statistics.median(a[i] / b[i] for a, b in zip(seen["gradpool"], seen[kind])) for i in range(2)]
        print("%-12s %12.0f %18.0f %13.2fx %13.2fx" % (kind, best[kind][0], best[kind][1], ratios[0], ratios[1]))


main()
