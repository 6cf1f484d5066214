"""peers_train.py: training steps and predictions of whole networks compared with PyTorch and onnxruntime, as tables.

    PYTHON peers_train.py --build build/release [--quick] [--networks lenet,alexnet] [--parts train,infer,workers]

PYTHON needs torch, torchvision and, for one column, onnxruntime and onnx. Both sides have the same network (torchvision's if the
zoo has it), batch, precision and number of threads. The batch is in memory (gradpool: bytes, normalized in the step; others:
normalized float32), and denormals are flushed. A training step is zero gradients, forward, loss, backward, and SGD with
momentum 0.9 and weight decay 1e-4 (PyTorch: fused). bf16 is autocast in PyTorch's training; for prediction, the whole network
is converted to bfloat16, which is faster. Compiled predictions have frozen weights.

Each PyTorch mode is a separate process, pinned to the same cores, that waits while others run. All modes alternate for several
rounds. A figure is the median over rounds of the median step in a round, in images per second. Modes far behind in the first
round are skipped later. The ratio is to the best mode.

The part "workers" compares gradpool's pools (data read and augmented by the loader, gradients exchanged) with
DistributedDataParallel over gloo: two processes with one thread each. A second table breaks down gradpool's step time. To run
only this part within a few minutes: --parts workers --networks alexnet --rounds 5."""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

NETWORKS = {  # name in the zoo: batch, name in torchvision
    "lenet": (256, None),
    "alexnet": (32, "alexnet"),
    "resnet18": (16, "resnet18"),
    "resnet50": (16, "resnet50"),
    "squeezenet1.1": (32, "squeezenet1_1"),
}
INFER = ["lenet", "resnet50"]
WORKERS = {"lenet": 600, "alexnet": 16}  # steps of one training in a pool
GOALS = {  # f32, bf16
    ("train", "lenet"): (3, 2.5), ("train", "alexnet"): (1.25, 2), ("train", "resnet18"): (1.3, 1.8),
    ("train", "resnet50"): (1.4, 2), ("train", "squeezenet1.1"): (1.5, 2),
    ("infer", "lenet"): (2.5, None), ("infer", "resnet50"): (1.6, 2.2),
    ("workers", "lenet"): (2.5, None), ("workers", "alexnet"): (2.2, 5),
}
PRECISIONS = ["f32", "bf16"]
LAYOUTS = ["contiguous", "channels_last"]
THREADS = 2
FAR_BEHIND = 1.6  # factor to the best mode of its kind


# --- one mode of PyTorch or onnxruntime: a process that receives the duration -------------------------------


def network_of(name):
    import torchvision
    from torch import nn

    if NETWORKS[name][1] is not None:
        return getattr(torchvision.models, NETWORKS[name][1])(weights=None), (3, 224, 224), 1000
    return nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)), (1, 28, 28), 10


def torch_setup(threads):
    import torch

    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)


def training_step(name, batch, precision, layout, compiled=False, wrap=None):
    import torch

    net, shape, classes = network_of(name)
    x, y = torch.rand(batch, *shape), torch.randint(classes, (batch,))
    if layout == "channels_last":
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    net = net if wrap is None else wrap(net)

    def loss_of(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            return torch.nn.functional.cross_entropy(net(x), y)

    loss_of = torch.compile(loss_of) if compiled else loss_of
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(x, y).backward()
        optimizer.step()

    return step


def predicting_step(name, precision, layout, compiled):
    import torch

    net, shape, _ = network_of(name)
    x = torch.rand(NETWORKS[name][0], *shape)
    kind = {"dtype": torch.bfloat16} if precision == "bf16" else {}
    if layout == "channels_last":
        kind["memory_format"] = torch.channels_last
    net, x = net.eval().to(**kind), x.to(**kind)
    if compiled:
        import torch._inductor.config

        torch._inductor.config.freezing = True
        net = torch.compile(net)

    def step():
        with torch.no_grad():
            return net(x)

    return step


def onnxruntime_step(name):
    import onnxruntime
    import torch

    net, shape, _ = network_of(name)
    x = torch.rand(NETWORKS[name][0], *shape)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "net.onnx")
        torch.onnx.export(net.eval(), (x,), path, dynamo=False)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, feed)


def peer(words):
    """Set up; then, for each line with a number of seconds, run steps for that time and print their durations."""
    phase, name, precision, layout, engine = words
    torch_setup(THREADS)
    if engine == "onnxruntime":
        step = onnxruntime_step(name)
    elif phase == "infer":
        step = predicting_step(name, precision, layout, engine == "compile")
    else:
        step = training_step(name, NETWORKS[name][0], precision, layout, engine == "compile")
    for _ in range(2):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        steps, end = [], time.perf_counter() + float(line)
        while not steps or time.perf_counter() < end:
            began = time.perf_counter()
            step()
            steps.append(time.perf_counter() - began)
        print(json.dumps(steps), flush=True)


class Peer:
    def __init__(self, *words):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--peer", ",".join(words)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.batch = NETWORKS[words[1]][0]
        self.answer("ready")

    def answer(self, expected=None):
        line = self.process.stdout.readline().strip()
        if line == "" or (expected and line != expected):
            raise RuntimeError((line + "\n" + self.process.stderr.read()).strip().splitlines()[-1])
        return line

    def rate(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self.batch / statistics.median(json.loads(self.answer()))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# --- gradpool ------------------------------------------------------------------------------------------------


def own_rate(options, phase, name, precision, seconds):
    command = [os.path.join(options.build, "bin", "bench_step"), "--network", name, "--phase", phase, "--threads",
               str(THREADS), "--batch", str(NETWORKS[name][0]), "--momentum", "0.9", "--seconds", str(seconds)]
    command += ["--precision", precision] if precision != "f32" else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split("median ")[1].split(";")[0])


# --- tables --------------------------------------------------------------------------------------------------


def say(text):
    print(text, file=sys.stderr, flush=True)


def contest(options, label, own, peers):
    """Run alternating rounds; return {name: median rate}. own and peers: functions from seconds to a rate."""
    rates = {name: [] for name in ["gradpool", *peers]}
    out = set()
    for _ in range(options.rounds):
        for name, function in {"gradpool": own, **peers}.items():
            if name in out:
                continue
            try:
                rates[name].append(function(options.seconds))
            except RuntimeError as error:
                say(f"{label}, {name}: {error}")
                out.add(name)
        best = max((statistics.median(rates[name]) for name in peers if rates[name]), default=0)
        out.update(name for name in peers if rates[name] and statistics.median(rates[name]) * FAR_BEHIND < best)
    rates = {name: r for name, r in rates.items() if r}
    say(f"{label}: " + "; ".join(f"{name} " + " ".join(f"{rate:.4g}" for rate in r) for name, r in rates.items()))
    return {name: statistics.median(r) for name, r in rates.items()}


def ratio_of(rates, leave=("gradpool",)):
    others = [rate for name, rate in rates.items() if name not in leave]
    return rates["gradpool"] / max(others) if "gradpool" in rates and others else None


def cell(value, form="{:.4g}"):
    return "-" if value is None else form.format(value)


def table(title, columns, rows):
    print(f"\n{title}\n\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    sys.stdout.flush()


def goal_of(part, name, precision, ratio):
    goal = GOALS[part, name][PRECISIONS.index(precision)]
    return "" if goal is None else f"{goal}x" + ("" if ratio is None else ", yes" if ratio >= goal else ", no")


def steps_part(options, phase):
    modes = [(layout, engine) for engine in ["eager"] + ([] if options.quick else ["compile"]) for layout in LAYOUTS]
    names = [f"{engine} {layout}" for layout, engine in modes] + (["onnxruntime"] if phase == "infer" else [])
    rows = []
    for name in [n for n in (NETWORKS if phase == "train" else INFER) if n in options.networks]:
        for precision in options.precisions:
            peers, label = {}, f"{phase} {name} {precision}"
            wanted = list(zip(names, modes)) + ([("onnxruntime", ("contiguous", "onnxruntime"))]
                                                if phase == "infer" and precision == "f32" else [])
            for title, (layout, engine) in wanted:
                try:
                    peers[title] = Peer(phase, name, precision, layout, engine)
                except RuntimeError as error:
                    say(f"{label}, {title}: {error}")
            rates = contest(options, label, lambda s: own_rate(options, phase, name, precision, s),
                            {title: p.rate for title, p in peers.items()})
            for p in peers.values():
                p.close()
            ratio = ratio_of(rates, ("gradpool", "onnxruntime"))
            rows.append([f"{name}, {NETWORKS[name][0]}", precision, f"**{cell(rates.get('gradpool'))}**"] +
                        [cell(rates.get(n)) for n in names] +
                        [cell(ratio, "{:.2f}"), goal_of(phase, name, precision, ratio)])
    table({"train": "Training steps", "infer": "Predictions"}[phase] + f", images/s, {THREADS} threads",
          ["network, batch", "precision", "gradpool"] + names + ["ratio", "asked"], rows)


# --- two workers ---------------------------------------------------------------------------------------------


def ddp_rank(rank, name, precision, layout, seconds, port, queue):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch_setup(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    step = training_step(name, NETWORKS[name][0] // 2, precision, layout, wrap=DistributedDataParallel)
    steps, flag, end = [], torch.zeros(1), None
    for _ in range(3):
        step()
    while flag[0] == 0:
        for _ in range(20 if name == "lenet" else 2):
            began = time.perf_counter()
            step()
            steps.append(time.perf_counter() - began)
        end = end or time.perf_counter() + seconds
        flag[0] = time.perf_counter() >= end  # both stop at the same step
        dist.broadcast(flag, 0)
    if rank == 0:
        queue.put(NETWORKS[name][0] / statistics.median(steps))
    dist.destroy_process_group()


def ddp(words):
    import torch.multiprocessing as multiprocessing

    name, precision, layout, seconds = words
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    ranks = [context.Process(target=ddp_rank, args=(r, name, precision, layout, float(seconds), port, queue))
             for r in range(2)]
    for rank in ranks:
        rank.start()
    print(queue.get(timeout=300))
    for rank in ranks:
        rank.join()


def ddp_rate(name, precision, layout, seconds):
    command = [sys.executable, os.path.abspath(__file__), "--ddp", f"{name},{precision},{layout},{seconds}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split()[-1])


PARTS = ["data", "forward", "backward", "exchange", "commit", "wait"]


def pool_rate(options, pool, name, precision, work, parts):
    """Return images/s; store the medians of a step's parts in ms in parts."""
    shape, classes = ("28x28x1", 10) if name == "lenet" else ("224x224x3", 1000)
    count = NETWORKS[name][0] * (WORKERS[name] // (4 if options.quick else 1))
    metrics = os.path.join(work, "metrics.jsonl")
    command = [os.path.join(os.path.abspath(options.build), "bin", "gradpool"), "train", "--pool", pool, "--network", name,
               "--data", f"synthetic:{shape}:{classes}:{count}", "--epochs", "1", "--batch-size", str(NETWORKS[name][0]),
               "--lr", "1e-4", "--momentum", "0.9", "--validation-data", "none", "--metrics", metrics, "--quiet"]
    command += ["--precision", precision] if precision != "f32" else []
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=work)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    with open(metrics, encoding="utf-8") as file:
        steps = [entry for entry in map(json.loads, file) if "step" in entry and "seconds" in entry][1:]
    for part in PARTS:
        parts.setdefault(part, []).append(statistics.median(step["time"][part] for step in steps))
    ends = [step["seconds"] for step in steps]
    return NETWORKS[name][0] / statistics.median(b - a for a, b in zip(ends, ends[1:]))


def workers_part(options):
    program = os.path.join(options.build, "bin", "gradpool")
    one, rows, spent = "gradpool, 1 worker x 2 cores", [], []
    with tempfile.TemporaryDirectory() as work:
        os.environ.update(GRADPOOL_RUNTIME_DIR=os.path.join(work, "run"), GRADPOOL_STATE_DIR=os.path.join(work, "state"))
        try:
            for pool, workers in (("bench2", "2"), ("bench1", "1")):
                subprocess.run([program, "up", "--pool", pool, "--workers", workers, "--quiet"], check=True)
            for name in [n for n in WORKERS if n in options.networks]:
                for precision in options.precisions:
                    parts = {"bench2": {}, "bench1": {}}
                    peers = {one: lambda _: pool_rate(options, "bench1", name, precision, work, parts["bench1"])}
                    for layout in LAYOUTS:
                        peers[f"DDP {layout}"] = lambda s, l=layout: ddp_rate(name, precision, l, s)
                    rates = contest(options, f"workers {name} {precision}",
                                    lambda _: pool_rate(options, "bench2", name, precision, work, parts["bench2"]), peers)
                    ratio, share = ratio_of(rates, ("gradpool", one)), ratio_of({k: rates[k] for k in ("gradpool", one)
                                                                                 if k in rates})
                    rows.append([f"{name}, {NETWORKS[name][0]}", precision, f"**{cell(rates.get('gradpool'))}**"] +
                                [cell(rates.get(n)) for n in peers] +
                                [cell(ratio, "{:.2f}"), goal_of("workers", name, precision, ratio), cell(share, "{:.3f}")])
                    for pool, what in (("bench2", "2 workers x 1 core"), ("bench1", "1 worker x 2 cores")):
                        spent.append([f"{name}, {NETWORKS[name][0]}", precision, what] +
                                     [cell(statistics.median(parts[pool][p]), "{:.1f}") if parts[pool] else "-" for p in PARTS])
        finally:
            for pool in ("bench2", "bench1"):
                subprocess.run([program, "down", "--pool", pool, "--quiet"], check=False)
    table("Two workers with one core each, whole trainings, images/s",
          ["network, batch", "precision", "gradpool, 2 workers x 1 core", one] + [f"DDP-gloo {l}" for l in LAYOUTS] +
          ["ratio to DDP", "asked", "2 workers / 1 worker (asked: 0.95)"], rows)
    table("Where our steps' time goes, ms of the first rank (workers share sum and update in the commit)",
          ["network, batch", "precision", "gradpool"] + PARTS, spent)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--quick", action="store_true", help="two short rounds without torch.compile")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="seconds per mode and round")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--parts", default="train,infer,workers")
    parser.add_argument("--peer")
    parser.add_argument("--ddp")
    options = parser.parse_args()
    if options.peer or options.ddp:
        (peer if options.peer else ddp)((options.peer or options.ddp).split(","))
        return
    options.rounds = options.rounds or (2 if options.quick else 3)
    options.seconds = options.seconds or (1.0 if options.quick else 2.0)
    options.networks, options.precisions = options.networks.split(","), options.precisions.split(",")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    for part in options.parts.split(","):
        if part == "workers":
            workers_part(options)
        else:
            steps_part(options, part)


if __name__ == "__main__":
    main()
