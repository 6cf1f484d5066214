#!/usr/bin/env python3
"""LeNet float32 on Fashion-MNIST: gradpool with its data loader, PyTorch with tensors in memory, on the same two cores,
alternating.

    python3 tests/bench/bench_train.py --gradpool build/release/bin/gradpool --data DIRECTORY [--rounds 5]

DIRECTORY contains the four gzipped IDX files. Uses PyTorch from the interpreter that runs this script. Each figure is the
median over the rounds of images per second in whole steps (zero gradients, forward, loss, backward, update).
"""
import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

BATCH = 256
RATE = 0.2


def load(directory):
    import numpy
    import torch

    def read(name, skip):
        with gzip.open(os.path.join(directory, name), "rb") as file:
            return numpy.frombuffer(file.read(), numpy.uint8, offset=skip)

    x = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).astype(numpy.float32) / 255
    y = read("train-labels-idx1-ubyte.gz", 8).astype(numpy.int64)
    return torch.from_numpy(x), torch.from_numpy(y)


def lenet():
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2, 2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2, 2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))


def torch_speed(mode, directory, seconds):
    """Return images per second of one process with two threads."""
    import torch
    import torch.nn.functional as functional

    torch.set_num_threads(2)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    x, y = load(directory)
    net = lenet()
    if mode == "channels_last":
        net = net.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    step_loss = lambda a, b: functional.cross_entropy(net(a), b)
    if mode == "compile":
        step_loss = torch.compile(step_loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    at = done = 0
    begin = None
    while begin is None or time.perf_counter() - begin < seconds:
        a, b = x[at:at + BATCH], y[at:at + BATCH]
        at = at + BATCH if at + 2 * BATCH <= len(x) else 0
        optimizer.zero_grad(set_to_none=True)
        step_loss(a, b).backward()
        optimizer.step()
        done += 1
        if done == 10:
            begin = time.perf_counter()
    return (done - 10) * BATCH / (time.perf_counter() - begin)


def ddp_rank(rank, directory, seconds, port, queue):
    import torch
    import torch.distributed as dist
    import torch.nn.functional as functional
    from torch.nn.parallel import DistributedDataParallel

    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    x, y = load(directory)
    half = BATCH // 2
    net = DistributedDataParallel(lenet())
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    at, done, begin = rank * half, 0, None
    flag = torch.zeros(1)
    while True:
        a, b = x[at:at + half], y[at:at + half]
        at = at + BATCH if at + 2 * BATCH <= len(x) else rank * half
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(net(a), b).backward()
        optimizer.step()
        done += 1
        if done == 10:
            begin = time.perf_counter()
        if done % 50 == 0:  # both ranks stop at the same step
            flag[0] = time.perf_counter() - begin >= seconds
            dist.broadcast(flag, 0)
            if flag[0] > 0:
                break
    if rank == 0:
        queue.put((done - 10) * BATCH / (time.perf_counter() - begin))
    dist.destroy_process_group()


def ddp_speed(directory, seconds):
    import socket

    import torch.multiprocessing as multiprocessing

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    ranks = [context.Process(target=ddp_rank, args=(r, directory, seconds, port, queue)) for r in range(2)]
    for rank in ranks:
        rank.start()
    speed = queue.get(timeout=300)
    for rank in ranks:
        rank.join()
    return speed


def gradpool_speed(program, pool, directory, epochs, work):
    command = [program, "train", "--pool", pool, "--network", "lenet", "--data", directory, "--epochs", str(epochs),
               "--batch-size", str(BATCH), "--lr", str(RATE), "--momentum", "0", "--l2-regularization", "0",
               "--validation-data", "none", "--json", "--quiet"]
    result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=work).stdout)
    return result["samples"] / result["seconds"]


def child(mode, directory, seconds):
    """Run each PyTorch mode in a new process, so that no mode inherits threads."""
    command = [sys.executable, os.path.abspath(__file__), "--child", mode, "--data", directory, "--seconds", str(seconds)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradpool")
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        speed = ddp_speed if options.child == "ddp" else None
        print(speed(options.data, options.seconds) if speed else
              torch_speed(options.child, options.data, options.seconds))
        return
    modes = ["nchw", "channels_last"] + ([] if options.no_compile else ["compile"]) + ["ddp"]
    speeds = {name: [] for name in ["2 workers x 1 core", "1 worker x 2 cores"] + modes}
    program = os.path.abspath(options.gradpool)
    data = os.path.abspath(options.data)
    with tempfile.TemporaryDirectory() as work:
        try:
            for pool, workers in (("bench2", "2"), ("bench1", "1")):
                subprocess.run([program, "up", "--pool", pool, "--workers", workers, "--quiet"], check=True)
            for _ in range(options.rounds):
                speeds["2 workers x 1 core"].append(gradpool_speed(program, "bench2", data, options.epochs, work))
                speeds["1 worker x 2 cores"].append(gradpool_speed(program, "bench1", data, options.epochs, work))
                for mode in modes:
                    speeds[mode].append(child(mode, data, options.seconds))
        finally:
            for pool in ("bench2", "bench1"):
                subprocess.run([program, "down", "--pool", pool, "--quiet"])
    median = {name: statistics.median(values) for name, values in speeds.items()}
    for name, values in speeds.items():
        print(f"{name:20s} {median[name]:9.0f} images/s   rounds: {' '.join(f'{v:.0f}' for v in values)}")
    best = max(median[m] for m in modes if m != "ddp")
    ours = median["2 workers x 1 core"]
    print(f"2 workers x 1 core / best PyTorch mode: {ours / best:.2f}x; / DDP-gloo 2 x 1: "
          f"{ours / median['ddp']:.2f}x; against 1 worker x 2 cores: {ours / median['1 worker x 2 cores']:.3f}x")


if __name__ == "__main__":
    main()
