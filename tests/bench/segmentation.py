"""segmentation.py: DeepLab v3+ (ResNet-18) on road scenes with the same recipe in gradpool and in PyTorch.

    PYTHON segmentation.py --build build/release --data DIRECTORY --work DIRECTORY [--epochs 8] [--crop 128] [--steps 12]
                           [--only ours|torch|workers]

--data DIRECTORY: CamVid in SegNet's form (train, trainannot, test, testannot). A reduced recipe: random patches of --crop pixels,
4 per image and epoch, rotated by up to 20 degrees and shifted by up to 10 pixels, with pixels from outside ignored;
mini-batches of 16, SGD with momentum 0.9, a learning rate of 0.03 multiplied by 0.2 every 3 epochs, L2 1e-3 on weights and
scales, Glorot initialization, no class weights. Both networks have 16,408,491 weights. Both programs predict the test images
in windows of --crop pixels that overlap by a quarter (worker/predict/windows.h).

Times: seconds of computation per step (median), and CPU time per step over all threads, which depends less on other load.
--only workers: the median step of one worker and of two, one core each, with the same mini-batch."""
import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time

RATE, DROP, PERIOD, MOMENTUM, L2, BATCH, PATCHES, TURN, SHIFT = 0.03, 0.2, 3, 0.9, 1e-3, 16, 4, 20, 10
CLASSES, NETWORK = 11, "deeplabv3plus:backbone=resnet18,output-stride=16"


def command(options, out, epochs, extra):
    augment = (f"crop=random crop-size={options.crop},{options.crop} patches-per-image={PATCHES} "
               f"rotation=-{TURN},{TURN} x-translation=-{SHIFT},{SHIFT} y-translation=-{SHIFT},{SHIFT}")
    return [os.path.join(options.build, "bin", "gradpool"), "train", "--network", NETWORK, "--data", options.data,
            "--augment", augment, "--validation-data", "none", "--epochs", str(epochs), "--mini-batch-size", str(BATCH),
            "--lr", str(RATE), "--learn-rate-schedule", "piecewise", "--learn-rate-drop-factor", str(DROP),
            "--learn-rate-drop-period", str(PERIOD), "--momentum", str(MOMENTUM), "--l2-regularization", str(L2), "--seed",
            str(options.seed), "--out", out, "--metrics", out + ".jsonl", "--lint", "warn", *extra]


def steps_of(path):
    """Return the seconds of computation per step, without waits for data or other workers."""
    found = []
    with open(path) as file:
        for line in file:
            record = json.loads(line)
            if "loss" in record and record.get("worker") is not None:
                found.append((record["worker"], record["step"], record["time"]))
    return found


def compute(parts):
    return (parts["forward"] + parts["backward"] + parts["commit"]) / 1e3


def pool(options, verb, *words):
    subprocess.run([os.path.join(options.build, "bin", "gradpool"), verb, *words], check=verb == "up",
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def processor_of_workers(options):
    """Return the CPU seconds used by the pool's workers."""
    tick, total = os.sysconf("SC_CLK_TCK"), 0
    status = json.loads(subprocess.run([os.path.join(options.build, "bin", "gradpool"), "status", "--json"], check=True,
                                       stdout=subprocess.PIPE).stdout)
    for worker in status["workers"]:
        with open(f"/proc/{worker['pid']}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / tick
    return total


def ours(options):
    model = os.path.join(options.work, "ours.onnx")
    pool(options, "up", "--workers", "1")
    began, processor = time.monotonic(), processor_of_workers(options)
    subprocess.run(command(options, model, options.epochs, []), check=True, stdout=subprocess.DEVNULL)
    seconds, processor = time.monotonic() - began, processor_of_workers(options) - processor
    times = [compute(parts) for _, _, parts in steps_of(model + ".jsonl")]
    found = json.loads(subprocess.run([os.path.join(options.build, "bin", "gradpool"), "evaluate", "--model", model, "--data",
                                       options.data, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    pool(options, "down")
    return {"iou": found["mean_iou"], "accuracy": found["accuracy"], "step": statistics.median(times[2:]),
            "processor": processor / len(times), "seconds": seconds}


# ---- PyTorch ----

def torch_network():
    from torch import nn
    import torch.nn.functional as functional
    import torch

    def conv(i, o, size, stride=1, dilation=1):
        return nn.Sequential(nn.Conv2d(i, o, size, stride, dilation * (size // 2), dilation, bias=False), nn.BatchNorm2d(o))

    class Block(nn.Module):
        def __init__(self, i, o, stride, first, second):
            super().__init__()
            self.a, self.b = conv(i, o, 3, stride, first), conv(o, o, 3, 1, second)
            self.short = conv(i, o, 1, stride) if i != o else None

        def forward(self, x):
            y = self.b(functional.relu(self.a(x)))
            return functional.relu(y + (x if self.short is None else self.short(x)))

    class DeepLab(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = conv(3, 64, 7, 2)
            self.s1 = nn.Sequential(Block(64, 64, 1, 1, 1), Block(64, 64, 1, 1, 1))
            self.s2 = nn.Sequential(Block(64, 128, 2, 1, 1), Block(128, 128, 1, 1, 1))
            self.s3 = nn.Sequential(Block(128, 256, 2, 1, 1), Block(256, 256, 1, 1, 1))
            self.s4 = nn.Sequential(Block(256, 512, 1, 1, 2), Block(512, 512, 1, 2, 2))
            self.aspp = nn.ModuleList([conv(512, 256, 1)] + [conv(512, 256, 3, 1, d) for d in (6, 12, 18)])
            self.project, self.low = conv(1024, 256, 1), conv(64, 48, 1)
            self.decode = nn.Sequential(conv(304, 256, 3), nn.ReLU(), conv(256, 256, 3), nn.ReLU())
            self.scorer = nn.Conv2d(256, CLASSES, 1)

        def forward(self, x):
            def grown(y, to):
                return functional.interpolate(y, size=to, mode="bilinear", align_corners=False)

            relu, size = functional.relu, x.shape[2:]
            low = self.s1(functional.max_pool2d(relu(self.stem(x)), 3, 2, 1))
            high = self.s4(self.s3(self.s2(low)))
            high = relu(self.project(torch.cat([relu(branch(high)) for branch in self.aspp], 1)))
            y = torch.cat([relu(self.low(low)), grown(high, low.shape[2:])], 1)
            return grown(self.scorer(self.decode(y)), size)

    net = DeepLab()
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    assert sum(p.numel() for p in net.parameters()) == 16408491
    return net


def scenes(directory, part):
    import numpy
    from PIL import Image

    names = sorted(os.listdir(os.path.join(directory, part)))
    images = [numpy.asarray(Image.open(os.path.join(directory, part, name)).convert("RGB")) for name in names]
    labels = [numpy.asarray(Image.open(os.path.join(directory, part + "annot", name))).astype(numpy.int64)
              for name in names]
    for label in labels:
        label[label >= CLASSES] = -1
    return images, labels


def normalized(images):
    """Normalize with ImageNet's channel means and deviations, like the zoo network."""
    import torch

    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((images.float() / 255).permute(0, 3, 1, 2) - mean.view(1, 3, 1, 1)) / deviation.view(1, 3, 1, 1)


def patch(image, label, side, random):
    """Return a random window, rotated and shifted; pixels outside the image have no label."""
    import numpy
    from PIL import Image

    height, width = label.shape
    left, top = random.integers(width - side + 1), random.integers(height - side + 1)
    angle = math.radians(random.uniform(-TURN, TURN))
    c, s = math.cos(angle), math.sin(angle)
    x, y = left + side / 2, top + side / 2
    u, v = side / 2 + random.uniform(-SHIFT, SHIFT), side / 2 + random.uniform(-SHIFT, SHIFT)
    inverse = (c, -s, x - c * u + s * v, s, c, y - s * u - c * v)
    moved = Image.fromarray(image).transform((side, side), Image.AFFINE, inverse, Image.BILINEAR)
    classes = Image.fromarray(numpy.where(label < 0, 255, label).astype(numpy.uint8)).transform(
        (side, side), Image.AFFINE, inverse, Image.NEAREST, fillcolor=255)
    classes = numpy.asarray(classes).astype(numpy.int64)
    return numpy.asarray(moved), numpy.where(classes == 255, -1, classes)


def torch_train(options):
    import numpy
    import torch
    import torch.nn.functional as functional

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    random = numpy.random.default_rng(options.seed)
    images, labels = scenes(options.data, "train")
    net = torch_network().to(memory_format=torch.channels_last)
    weights = [p for p in net.parameters() if p.dim() > 1]
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            weights.append(layer.weight)
    chosen = {id(p) for p in weights}
    optimizer = torch.optim.SGD([{"params": weights, "weight_decay": L2},
                                 {"params": [p for p in net.parameters() if id(p) not in chosen]}],
                                lr=RATE, momentum=MOMENTUM)
    times, processor = [], []
    began = time.monotonic()
    for epoch in range(options.epochs):
        for group in optimizer.param_groups:
            group["lr"] = RATE * DROP ** (epoch // PERIOD)
        order = random.permutation(len(images) * PATCHES)
        for first in range(0, len(order), BATCH):
            pairs = [patch(images[i % len(images)], labels[i % len(images)], options.crop, random)
                     for i in order[first:first + BATCH]]
            x = normalized(torch.from_numpy(numpy.stack([p[0] for p in pairs]))).contiguous(
                memory_format=torch.channels_last)
            y = torch.from_numpy(numpy.stack([p[1] for p in pairs]))
            start, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(x), y, ignore_index=-1)
            loss.backward()
            optimizer.step()
            now = resource.getrusage(resource.RUSAGE_SELF)
            times.append(time.monotonic() - start)
            processor.append(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
            if len(times) % 5 == 0:
                print(f"PyTorch: step {len(times)}, CPU time per step {statistics.mean(processor):.2f} s",
                      file=sys.stderr)
        print(f"PyTorch: epoch {epoch + 1}, loss {loss.item():.4f}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    seconds = time.monotonic() - began
    iou, accuracy = torch_evaluate(net, options)
    return {"iou": iou, "accuracy": accuracy, "step": statistics.median(times[2:]),
            "processor": statistics.mean(processor), "seconds": seconds}


def axis(length, size, overlap):
    """Return window positions and pixel weights like worker/predict/windows.h."""
    import numpy

    count = 1 if length <= size else math.ceil((length - overlap) / (size - overlap))
    starts = [0 if count == 1 else (k * (length - size) + (count - 1) // 2) // (count - 1) for k in range(count)]
    weights = numpy.ones((count, size))
    for k in range(count - 1):
        shared = starts[k] + size - starts[k + 1]
        fade = numpy.clip(2 * ((numpy.arange(shared) + 0.5) / shared - 0.25), 0, 1)
        weights[k + 1, :shared] *= fade
        weights[k, size - shared:] *= 1 - fade
    total = numpy.zeros(length)
    for k in range(count):
        total[starts[k]:starts[k] + size] += weights[k]
    for k in range(count):
        weights[k] /= total[starts[k]:starts[k] + size]
    return starts, weights


def torch_evaluate(net, options):
    import numpy
    import torch

    net.eval()
    confusion = numpy.zeros((CLASSES, CLASSES), numpy.int64)
    images, labels = scenes(options.data, "test")
    height, width = labels[0].shape
    rows, down = axis(height, options.crop, options.crop // 4)
    columns, across = axis(width, options.crop, options.crop // 4)
    with torch.no_grad():
        for image, label in zip(images, labels):
            x = normalized(torch.from_numpy(image.copy())[None])
            parts = [(i, j) for i in range(len(rows)) for j in range(len(columns))]
            batch = torch.cat([x[:, :, rows[i]:rows[i] + options.crop, columns[j]:columns[j] + options.crop]
                               for i, j in parts])
            scores = torch.softmax(net(batch.contiguous(memory_format=torch.channels_last)), 1).numpy()
            whole = numpy.zeros((CLASSES, height, width))
            for (i, j), one in zip(parts, scores):
                whole[:, rows[i]:rows[i] + options.crop, columns[j]:columns[j] + options.crop] += (
                    one * down[i][None, :, None] * across[j][None, None, :])
            known = label >= 0
            numpy.add.at(confusion, (label[known], whole.argmax(0)[known]), 1)
    right = numpy.diag(confusion).astype(float)
    union = confusion.sum(0) + confusion.sum(1) - right
    return float((right[union > 0] / union[union > 0]).mean()), right.sum() / confusion.sum()


# ---- workers ----

def workers(options):
    """Measure the median iteration of one worker and of two, one core each, alternating; the slower worker counts."""
    pool(options, "up", "--workers", "2")
    found = {1: [], 2: []}
    for turn in range(2):
        for count in (1, 2):
            out = os.path.join(options.work, f"w{count}.onnx")
            options.seed = turn + 1
            lines = []
            process = subprocess.Popen(command(options, out, 1, ["-n", str(count)]), stdout=subprocess.DEVNULL)
            while process.poll() is None:  # a few steps are enough
                time.sleep(1)
                if os.path.exists(out + ".jsonl"):
                    lines = steps_of(out + ".jsonl") if not_torn(out + ".jsonl") else lines
                    if lines and max(step for _, step, _ in lines) >= options.steps:
                        process.send_signal(2)
                        break
            process.wait()
            by_step = {}
            for _, step, parts in steps_of(out + ".jsonl"):
                by_step[step] = max(by_step.get(step, 0), (sum(parts.values()) - parts["data"]) / 1e3)
            found[count] += [seconds for step, seconds in by_step.items() if step > 2]
            os.remove(out + ".jsonl")
    pool(options, "down")
    one, two = statistics.median(found[1]), statistics.median(found[2])
    print(f"iteration of one worker {one:.3f} s, of two {two:.3f} s (a core each, mini-batch {BATCH}): {two / one:.3f}")


def not_torn(path):
    with open(path, "rb") as file:
        text = file.read()
    return text.endswith(b"\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--crop", type=int, default=128)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", choices=["ours", "torch", "workers"])
    options = parser.parse_args()
    print("| | mean IoU | accuracy | step | CPU time per step | training |\n|---|---|---|---|---|---|", flush=True)
    for name, run in (("gradpool", ours), ("PyTorch", torch_train)):
        if options.only not in (None, "ours" if run is ours else "torch"):
            continue
        r = run(options)
        print(f"| {name} | {r['iou'] * 100:.2f} % | {r['accuracy'] * 100:.2f} % | {r['step']:.3f} s | "
              f"{r['processor']:.2f} s | {r['seconds']:.0f} s |", flush=True)
    if options.only in (None, "workers"):
        workers(options)


main()
