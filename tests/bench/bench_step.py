"""bench_step.py: the training step of bench_step.c in PyTorch, alternating with gradpool; prints rates and ratios.

    PYTHON bench_step.py BENCH_STEP [--threads 1] [--batch 256] [--seconds 2] [--rounds 3] [--no-compile]

PYTHON needs PyTorch. Every mode runs in a separate process, pinned to the first allowed cores. The modes alternate for several
rounds, and the best step of each mode counts, because other programs share the machine. The network is LeNet from d2l 12.5;
a step is zero grad, forward, loss, backward and SGD on a float32 batch in memory, with denormals flushed."""
import argparse
import os
import re
import subprocess
import sys

MODES = ["eager", "channels_last", "compile", "compile+channels_last"]


def child(mode, threads, batch, seconds):
    import time

    import torch
    from torch import nn

    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(),
                        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
    x = torch.rand(batch, 1, 28, 28)
    y = torch.randint(10, (batch,))
    if "channels_last" in mode:
        net = net.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)

    def loss_of(x, y):
        return nn.functional.cross_entropy(net(x), y)

    if "compile" in mode:
        loss_of = torch.compile(loss_of)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(x, y).backward()
        optimizer.step()

    for _ in range(3):
        step()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    times.sort()
    print(f"best {batch / times[0]:.0f} images/s, median {batch / times[len(times) // 2]:.0f}")


def rates(text):
    found = re.search(r"best ([\d.]+) images/s, median ([\d.]+)", text)
    return (float(found[1]), float(found[2])) if found else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench_step")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        child(options.child, options.threads, options.batch, options.seconds)
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])
    shared = ["--threads", str(options.threads), "--batch", str(options.batch), "--seconds", str(options.seconds)]
    modes = [mode for mode in MODES if not (options.no_compile and "compile" in mode)]
    best = {}
    for _ in range(options.rounds):
        for mode in ["gradpool"] + modes:
            command = [options.bench_step] if mode == "gradpool" else [sys.executable, __file__, "x", "--child", mode]
            run = subprocess.run(command + shared, capture_output=True, text=True, check=False)
            rate = rates(run.stdout)
            if rate is None:
                print(f"{mode}: failed: {run.stderr.strip().splitlines()[-1:]}")
                continue
            best[mode] = tuple(max(a, b) for a, b in zip(rate, best.get(mode, (0, 0))))
    for mode, (top, median) in best.items():
        ratio = f", gradpool is {best['gradpool'][0] / top:.2f}x [median {best['gradpool'][1] / median:.2f}x]"
        print(f"{mode}: best {top:.0f} images/s, median {median:.0f}{ratio if mode != 'gradpool' else ''}")


if __name__ == "__main__":
    main()
