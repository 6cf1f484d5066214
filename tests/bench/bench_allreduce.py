#!/usr/bin/env python3
"""All-reduce with gradpool's shared-memory transport and with PyTorch's gloo, alternating.

    PYTHON bench_allreduce.py [--build build/release] [--rounds 3] [--seconds 0.5]

PYTHON needs torch. For each size and number of ranks the programs alternate, so that other load affects both. The table shows
the median over rounds of each program's median operation, and the ratio. Rank 0 times every operation after a barrier, on data
that each rank has just written.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SIZES = [("4 KB", 4096), ("1 MB", 1 << 20), ("25 MB", 25 << 20)]


def gloo_rank(rank, world, count, seconds, pin, port, result):
    import torch
    import torch.distributed as dist

    if pin:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    data = torch.empty(count, dtype=torch.float32)
    times, end, stop = [], time.perf_counter() + seconds, False
    while not stop:
        data.fill_(1.0)
        if rank == 0 and len(times) >= 10 and time.perf_counter() >= end:
            data[0] = 1000.0
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(data)
        times.append(time.perf_counter() - began)
        assert float(data[-1]) == world
        stop = float(data[0]) >= 1000.0
    if rank == 0:
        result.put(statistics.median(times[3:]) * 1e6)
    dist.destroy_process_group()


def run_gloo(world, count, seconds, pin):
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    result = context.Queue()
    port = 20000 + os.getpid() % 20000
    ranks = [context.Process(target=gloo_rank, args=(k, world, count, seconds, pin, port, result))
             for k in range(world)]
    for rank in ranks:
        rank.start()
    median = result.get(timeout=300)
    for rank in ranks:
        rank.join()
    return median


def run_ours(program, world, bytes_, seconds, flags):
    line = subprocess.run([program, str(world), str(bytes_), str(seconds), *flags], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return json.loads(line)["median_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release", help="build folder with bench/bench_allreduce")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="per program, size and round [0.5]")
    options = parser.parse_args()
    program = os.path.join(options.build, "bench", "bench_allreduce")
    if not os.path.exists(program):
        sys.exit(f"no {program}; build the release preset first")

    print("| ranks | size | gradpool us | private buffers us | PyTorch gloo us | ratio | private ratio |")
    print("|---|---|---|---|---|---|---|")
    for world, pin in ((2, True), (4, False)):
        flags = ["pin"] if pin else []
        for name, bytes_ in SIZES:
            ours, private, gloo = [], [], []
            for _ in range(options.rounds):
                ours.append(run_ours(program, world, bytes_, options.seconds, flags))
                # If pinned, gloo's event thread shares the caller's core, which is not always faster.
                best = min(run_gloo(world, bytes_ // 4, options.seconds, p) for p in {pin, False})
                gloo.append(best)
                private.append(run_ours(program, world, bytes_, options.seconds, flags + ["private"]))
            a, b, c = (statistics.median(x) for x in (ours, private, gloo))
            who = f"{world}, pinned" if pin else f"{world}"
            print(f"| {who} | {name} | {a:.1f} | {b:.1f} | {c:.1f} | {c / a:.1f}x | {c / b:.1f}x |",
                  flush=True)


if __name__ == "__main__":
    main()
