#!/usr/bin/env python3
"""tests/gpu/bench.py: images per second of a training step or a prediction in PyTorch, for comparison with bench_step.

    python3 tests/gpu/bench.py NETWORK BATCH f32|tf32|bf16 eager|compile|graph [SECONDS [train|copied|infer]]
    python3 tests/gpu/bench.py NETWORK BATCH f32|tf32|bf16 profile      print the longest kernels of a training step

NETWORK: lenet, a torchvision model, or deeplabv3_resnet50 (512 x 512, 21 classes; torchvision has no v3+). channels_last, SGD
with momentum (fused), bf16 by autocast. graph: the whole step as one CUDA graph. As in bench_step, the batch of a training is in
GPU memory (copied: each step copies bytes from page-locked memory), and a prediction copies its samples. Prints one line of
JSON."""
import json, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F


class LeNet(nn.Module):  # d2l 12.5
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def build(name):
    if name == "lenet":
        return LeNet(), (1, 28, 28), 10
    import torchvision.models as models
    if name.startswith("deeplab"):
        return getattr(models.segmentation, name)(weights=None, weights_backbone=None, num_classes=21), (3, 512, 512), 21
    return getattr(models, name)(), (3, 224, 224), 1000


class Copies:
    """A batch of bytes in page-locked memory, which each step copies to the GPU."""

    def __init__(self, batch, shape):
        self.samples = torch.randint(0, 256, (batch, *shape), dtype=torch.uint8).pin_memory()

    def next(self):
        x = self.samples.to("cuda", non_blocking=True)
        return x.to(memory_format=torch.channels_last).float().div_(255)


def print_profile(step):
    """Print the ten kernels that take longest, with their time in one of five steps."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    kernels = sorted(((getattr(e, "self_device_time_total", 0), e.count, e.key) for e in profile.key_averages()), reverse=True)
    print(f"{sum(k[0] for k in kernels) / 5e3:9.3f} ms in all kernels")
    for us, count, key in kernels[:10]:
        print(f"{us / 5e3:9.3f} ms  {count / 5:6.1f} times  {key[:120]}")


def main():
    name, batch, precision, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    seconds = float(sys.argv[5]) if len(sys.argv) > 5 else 3.0
    phase = sys.argv[6] if len(sys.argv) > 6 else "train"
    infer = phase == "infer"
    if phase != "train" and mode == "graph":
        sys.exit("a graph cannot copy samples: use phase train")
    pixels = name.startswith("deeplab")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "f32"
    net, shape, classes = build(name)
    net = net.cuda().train(not infer).to(memory_format=torch.channels_last)
    optim = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    x = torch.rand(batch, *shape, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch,) + (shape[1:] if pixels else ()), device="cuda")
    run = torch.compile(net) if mode == "compile" else net
    copies = Copies(batch, shape) if phase != "train" else None

    def samples():
        return x if copies is None else copies.next()

    def predict():
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            run(samples())

    def train():
        optim.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            out = run(samples())
            loss = F.cross_entropy(out["out"] if pixels else out, y)
        loss.backward()
        optim.step()

    step = predict if infer else train
    if mode == "graph":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        call = graph.replay
    else:
        for _ in range(10):
            step()
        call = step
    torch.cuda.synchronize()
    if mode == "profile":
        return print_profile(call)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(10):
            call()
        torch.cuda.synchronize()
        count += 10
    took = time.perf_counter() - begin
    print(json.dumps({"peer": "torch " + torch.__version__, "network": name, "batch": batch, "precision": precision,
                      "mode": mode, "phase": phase, "images_per_second": round(batch * count / took, 1),
                      "ms": round(took / count * 1e3, 4)}))


main()
