"""cifar.py: test accuracy of a narrow ResNet-18 trained with the same recipe by gradpool and by PyTorch.

    PYTHON cifar.py --build build/release --data DIRECTORY --work DIRECTORY [--epochs 10] [--seeds 3] [--width 16]

--data DIRECTORY: train/CLASS/NAME.jpg, test/CLASS/NAME.jpg, 32x32 RGB. Network: ResNet-18 for small images (3x3 stem without
pooling; He et al., CVPR 2016) with --width channels in the first stage. Recipe: pixels/255, He initialization, mini-batches
of 128, random mirroring, SGD with momentum 0.9, L2 5e-4 on weights and scales, learning rate 0.1 with cosine decay. Both
programs use two threads and run one after the other; each seed is one training per program."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

RATE, MOMENTUM, L2, BATCH, WIDTH = 0.1, 0.9, 5e-4, 128, 16


def network(width):
    """Return the network as gradpool JSON."""
    layers, here = [], "input"

    def add(name, kind, inputs, **settings):
        nonlocal here
        layers.append({"name": name, "kind": kind, "inputs": inputs, **settings})
        here = name

    def conv_norm(name, source, channels, size, stride):
        add(name, "conv2d", [source], channels=channels, kernel=[size, size], stride=[stride, stride],
            padding=[size // 2] * 4, bias=False)
        add(name + "_bn", "batchnorm", [here])

    conv_norm("stem", here, width, 3, 1)
    add("stem_relu", "relu", [here])
    for stage in range(4):
        for block in range(2):
            name, source = f"s{stage}b{block}", here
            stride = 2 if stage > 0 and block == 0 else 1
            conv_norm(name + "_1", source, width << stage, 3, stride)
            add(name + "_relu1", "relu", [here])
            conv_norm(name + "_2", here, width << stage, 3, 1)
            end, short = here, source
            if stride != 1:
                conv_norm(name + "_short", source, width << stage, 1, stride)
                short = here
            add(name + "_sum", "add", [end, short])
            add(name + "_relu2", "relu", [here])
    add("pool", "globalavgpool", [here])
    add("fc", "fc", [here], outputs=10)
    add("loss", "crossentropy", [here])
    return {"name": "narrow-resnet18", "input": [3, 32, 32], "scale": [1 / 255], "offset": [0], "layers": layers}


def ours(options, seed):
    tool, model = os.path.join(options.build, "bin", "gradpool"), os.path.join(options.work, "model.onnx")
    net = os.path.join(options.work, "net.json")
    with open(net, "w") as file:
        json.dump(network(options.width), file)
    began = time.monotonic()
    subprocess.run([tool, "train", "--network", net, "--data", options.data, "--validation-data", "none", "--epochs",
                    str(options.epochs), "--mini-batch-size", str(BATCH), "--lr", str(RATE), "--momentum",
                    str(MOMENTUM), "--l2-regularization", str(L2), "--learn-rate-schedule", "cosine",
                    "--weights-initializer", "he", "--augment", "x-reflection=0.5", "--seed", str(seed), "--out",
                    model], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    found = subprocess.run([tool, "evaluate", "--model", model, "--data", options.data, "--json"], check=True,
                           stdout=subprocess.PIPE)
    return json.loads(found.stdout)["accuracy"], seconds


def images_of(directory):
    import numpy
    from PIL import Image

    classes = sorted(os.listdir(directory))
    found = [(os.path.join(directory, name, image), label) for label, name in enumerate(classes)
             for image in sorted(os.listdir(os.path.join(directory, name)))]
    pixels = numpy.stack([numpy.asarray(Image.open(path).convert("RGB")) for path, _ in found])
    return pixels.transpose(0, 3, 1, 2).astype("float32") / 255, numpy.array([label for _, label in found])


def torch_network(width):
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before, channels, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)
            self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
            self.short = nn.Sequential() if stride == 1 else nn.Sequential(
                nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
            self.relu = nn.ReLU()

        def forward(self, x):
            return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + self.short(x))

    blocks, before = [], width
    for stage in range(4):
        for block in range(2):
            blocks.append(Block(before, width << stage, 2 if stage > 0 and block == 0 else 1))
            before = width << stage
    net = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), *blocks,
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            fan_in = module.weight[0].numel()
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan_in))
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    return net


def theirs(options, seed, train, test):
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    net = torch_network(options.width).to(memory_format=torch.channels_last)
    x, y = (torch.from_numpy(part) for part in train)
    decayed = [p for name, p in net.named_parameters() if not name.endswith("bias")]
    rest = [p for name, p in net.named_parameters() if name.endswith("bias")]
    optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": L2}, {"params": rest, "weight_decay": 0}], lr=RATE,
                                momentum=MOMENTUM)
    steps, step = options.epochs * math.ceil(len(x) / BATCH), 0
    loss_of = torch.nn.CrossEntropyLoss()
    began = time.monotonic()
    for _ in range(options.epochs):
        for index in torch.randperm(len(x)).split(BATCH):
            images = x[index]
            mirrored = torch.rand(len(images)) < 0.5
            images[mirrored] = images[mirrored].flip(3)
            for group in optimizer.param_groups:
                group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / max(1, steps - 1)))
            optimizer.zero_grad()
            loss_of(net(images.contiguous(memory_format=torch.channels_last)), y[index]).backward()
            optimizer.step()
            step += 1
    seconds = time.monotonic() - began
    net.eval()
    with torch.no_grad():
        x, y = (torch.from_numpy(part) for part in test)
        right = sum(int((net(a).argmax(1) == b).sum()) for a, b in zip(x.split(500), y.split(500)))
    return right / len(x), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "build", "data", "work":
        parser.add_argument("--" + name, required=True)
    for name, value in ("epochs", 10), ("seeds", 3), ("width", WIDTH), ("threads", 2):
        parser.add_argument("--" + name, type=int, default=value)
    options = parser.parse_args()
    train, test = (images_of(os.path.join(options.data, part)) for part in ("train", "test"))
    found = {"gradpool": [], "PyTorch": []}
    for seed in range(1, options.seeds + 1):
        for name, run in ("gradpool", lambda: ours(options, seed)), ("PyTorch", lambda: theirs(options, seed, train, test)):
            found[name].append(run())
            print(f"seed {seed} {name}: {found[name][-1][0]:.4f} in {found[name][-1][1]:.0f} s", file=sys.stderr)
    print(f"narrow ResNet-18 (width {options.width}), {options.epochs} epochs of {len(train[0])} images, "
          f"{len(test[0])} test images\n")
    print("| | test accuracy, mean | each seed | seconds, mean |\n|---|---|---|---|")
    for name, results in found.items():
        accuracies = [accuracy for accuracy, _ in results]
        print(f"| {name} | {statistics.mean(accuracies):.4f} | {', '.join(f'{a:.4f}' for a in accuracies)} | "
              f"{statistics.mean(seconds for _, seconds in results):.0f} |")
    gap = statistics.mean(a for a, _ in found["gradpool"]) - statistics.mean(a for a, _ in found["PyTorch"])
    print(f"\ndifference of the means: {100 * gap:+.2f} points")


if __name__ == "__main__":
    main()
