"""The rows of tests/gpu/check: their table, at the end, and their functions.

A function raises Failed or Skipped, or returns if the check has passed. Its first argument is the Machine of tests/gpu/check."""
import collections
import glob
import importlib.util
import json
import os
import re
import shutil
import signal
import sys
import time

import predict


class Failed(Exception):
    """A check that failed. code, output: of the program that failed, if any."""

    def __init__(self, message, code=0, output=""):
        super().__init__(message)
        self.code, self.output = code, output


class Skipped(Exception):
    """A check that this machine does not support."""


def require(condition, message):
    if not condition:
        raise Failed(message)


def until(condition, poll_s=0.05):
    """Wait for a condition; the limit of the row ends the wait."""
    while not condition():
        time.sleep(poll_s)


# ---- trainings ----

def network(m, name, layers):
    """Write a network for images of 28 x 28 pixels. Return its file."""
    path = f"{m.work}/{name}.json"
    with open(path, "w") as file:
        json.dump({"name": name, "input": [1, 28, 28], "scale": [0.0039], "offset": [0], "layers": [
            *layers, {"name": "fc", "kind": "fc", "outputs": 10}, {"name": "loss", "kind": "crossentropy"}]}, file)
    return path


def conv(name, channels, stride=1):
    return {"name": name, "kind": "conv2d", "channels": channels, "kernel": [3, 3], "stride": [stride, stride], "padding": [1, 1, 1, 1]}


def fake_network(m, name):
    """A network that a fake GPU trains within a second."""
    norm = [{"name": "norm", "kind": "batchnorm"}] if name == "resnet" else []
    return network(m, name, [{**conv("conv", 4, 2), "kernel": [5, 5], "padding": [0, 0, 0, 0]}, *norm, {"name": "relu", "kind": "relu"}])


def folded_network(m):
    """A residual block, whose batch norms are folded into the convolutions for prediction."""
    channels = 4 if m.fake else 64
    return network(m, "folded", [
        conv("conv1", channels, 2), {"name": "norm1", "kind": "batchnorm"}, {"name": "relu1", "kind": "relu"},
        conv("conv2", channels), {"name": "norm2", "kind": "batchnorm"}, {"name": "sum", "kind": "add", "inputs": ["norm2", "relu1"]},
        {"name": "relu2", "kind": "relu"}])


def options_of(m, name):
    """The options of a training: lenet, resnet or folded."""
    if name == "folded":
        return ["--network", folded_network(m), "--data", "digits:256" if m.fake else f"{m.cpu}/digits", "--mini-batch-size", 32,
                "--lr", 0.01, "--epochs", 1]
    if m.fake:
        return ["--network", fake_network(m, name), "--data", "digits:256", "--mini-batch-size", 32, "--lr", 0.1, "--epochs",
                2 if name == "lenet" else 1]
    if name == "lenet":
        return ["--network", "lenet", "--data", f"{m.cpu}/digits", "--mini-batch-size", 256, "--lr", 0.1, "--epochs", 2]
    return ["--network", "resnet18", "--data", "synthetic:32x32x3:10:640", "--mini-batch-size", 64, "--lr", 0.02, "--epochs", 1]


def device_of(pool):
    """Options that refuse workers of the wrong kind: without a pool, the command would start one on the devices that are free."""
    return ["--pool", pool, "--execution-environment", "parallel-cpu" if pool == "cpu" else "parallel-gpu"]


def train(m, pool, metrics, options, *more):
    """Train. The losses are in METRICS.jsonl, the network in METRICS.onnx of the work folder."""
    m.run("gradpool", "train", *device_of(pool), "--metrics", m.path(metrics + ".jsonl"), "--plots", "none", "--quiet", "--seed", 3,
          "--validation-data", "none", "--out", f"{m.work}/{metrics}.onnx", *options, *more)


def steps_of(m, metrics):
    rows = [json.loads(line) for line in open(m.path(metrics + ".jsonl"))]
    return [row for row in rows if "step" in row and "loss" in row]


def compare(m, a, b, rule="equal"):
    m.run("compare.py", m.path(a + ".jsonl"), m.path(b + ".jsonl"), rule)


def evaluate(m, pool, name, precision):
    """Write NAME.json: the loss of the CPU's network on new samples."""
    out = m.run("gradpool", "evaluate", "--model", m.path("folded-cpu.onnx"), *device_of(pool), "--data", "digits:1024",
                "--precision", precision, "--json")
    with open(m.path(name + ".json"), "w") as file:
        file.write(out[out.index("{"):])


SOLVERS = ("adam", "adamw", "rmsprop")


def solver_options(m, solver):
    return [*options_of(m, "lenet"), "--lr", 0.001, "--epochs", 1, "--solver", solver, "--gradient-threshold", 1]


def make_cpu_results(m):
    """Train and evaluate on the CPU: the results with which those of the GPU are compared."""
    os.makedirs(m.cpu, exist_ok=True)
    m.run("gradpool", "data", "make", "digits", f"{m.cpu}/digits", "--count", 10240, "--test-count", 256)
    up(m, "cpu", "--devices", "cpu", "--workers", 1)
    for name in ("lenet", "resnet", "folded"):
        train(m, "cpu", f"{name}-cpu", options_of(m, name))
    shutil.copy(f"{m.work}/folded-cpu.onnx", m.path("folded-cpu.onnx"))
    for solver in SOLVERS:
        train(m, "cpu", f"{solver}-cpu", solver_options(m, solver))
    evaluate(m, "cpu", "predicted-cpu", "f32")
    down(m, "cpu")
    open(f"{m.cpu}/complete", "w").close()


# ---- pools ----

def up(m, pool, *options, env=None):
    m.pools.add(pool)
    m.run("gradpool", "up", "--pool", pool, *options, "--quiet", env=env)


def down(m, pool):
    m.run("gradpool", "down", "--pool", pool, "--quiet")
    m.pools.discard(pool)


def status(m, pool):
    out = m.run("gradpool", "status", "--pool", pool, "--json")
    return json.loads(out[out.index("{"):])


def pids(m, pool):
    return [worker["pid"] for worker in status(m, pool)["workers"]]


RESTORE_S = 60  # time limit to restore the pool after a row that failed or reached its limit


class Instead:
    """Replace the pool `gpu` by another pool, because only one pool of a user can claim a device."""

    def __init__(self, m, pool, **env):
        self.m, self.pool, self.env = m, pool, env

    def __enter__(self):
        if "gpu" in self.m.pools:
            down(self.m, "gpu")
        up(self.m, self.pool, "--workers", 1, env=self.env)

    def __exit__(self, *cause):
        """Restore the pool for the next rows, also after a failure."""
        if cause[0] is not None:
            self.m.end_children()
            signal.setitimer(signal.ITIMER_REAL, RESTORE_S)
        down(self.m, self.pool)
        up(self.m, "gpu", "--workers", 1)


def up_several(m, pool, count):
    """Start several workers on one GPU, in place of an earlier pool of several workers."""
    for earlier in m.pools & {"twice", "first", "four"}:
        down(m, earlier)
    env = {"GRADPOOL_NCCL_SHARED_GPU": "1", "GRADPOOL_LOG": "debug"}
    if m.fake:
        env["FAKE_NVML"] = m.cards(2, count)  # the pool `gpu` has claimed the first
    else:
        env.update(GRADPOOL_NVML_LIBRARY=f"{m.pack}/lib/libgpu_twice.so", GRADPOOL_GPU_TIMES=str(count))
    up(m, pool, "--workers", count, env=env)


def require_joined(m, pool, count):
    """Require that NCCL joined the workers: otherwise gradients go through the host, with the same results."""
    text = logs(m, pool)
    refused = re.search(r"event=gpu-exchange-indirect .*", text)
    require(re.search(rf"event=gpu-joined .*\bjoined {count} ranks", text),
            f"NCCL joined no group of {count} workers: {refused[0] if refused else 'the logs have no reason'}")


def logs(m, pool):
    return "".join(open(path).read() for path in glob.glob(f"{m.environment['GRADPOOL_STATE_DIR']}/*/{pool}/log/worker-*.log"))


# ---- right ----

def machine(m):
    if not m.fake:
        m.run("nvidia-smi", "--query-gpu=name,uuid,driver_version,memory.total,compute_mode,mig.mode.current", "--format=csv")
        m.run("ldd", m.environment["GRADPOOL_CUDA_PLUGIN"])
    m.run("gradpool-worker", "--probe")
    m.run("gradpool", "devices")


def doctor(m):
    m.run("gradpool", "doctor")  # warnings are accepted


def properties(m):
    """Write the properties of the device, and compare them with those that the tests without a device use."""
    library = next((path for d in m.library_folders for path in glob.glob(f"{d}/libcudnn.so.9")), None)
    if library is None:
        raise (Skipped if m.fake else Failed)(f"no libcudnn.so.9 in {':'.join(m.library_folders)}")
    m.run("properties.py", library, m.results.path("device.json"), *([os.path.join(os.path.dirname(__file__), "h200.json")] if m.fake else []))


def plugin(m):
    if m.fake:
        raise Skipped("not on the fake libraries")
    m.run("test_plugin", "real_plugin")


def kinds(m):
    m.run("test_cuda_device", *(["batch_norm_in_a_residual_block"] if m.fake else []))


def pool(m):
    up(m, "gpu", "--workers", 1)
    out = m.run("gradpool", "status", "--pool", "gpu", "--json")
    require('"kind": "cuda"' in out, "the pool has no worker with a GPU")


def curve(m, name, precision, rule):
    """A training has the losses of the CPU, up to rounding."""
    metrics = f"{name}-{'gpu' if precision == 'f32' else precision}"
    train(m, "gpu", metrics, options_of(m, name), "--precision", precision)
    compare(m, f"{name}-cpu", metrics, rule)


def repeat(m):
    train(m, "gpu", "again", options_of(m, "lenet"), "--precision", "f32")
    compare(m, "lenet-gpu", "again")


def kernels(m, word):
    """A training with another kind of launches or input is bitwise identical."""
    with Instead(m, word, GRADPOOL_CUDA_KERNELS=word):
        train(m, word, f"lenet-{word}", options_of(m, "lenet"), "--precision", "f32")
        compare(m, "lenet-gpu", f"lenet-{word}")


def join(m, first, second, joined):
    with open(m.path(joined + ".jsonl"), "w") as out:
        out.write(open(m.path(first + ".jsonl")).read() + open(m.path(second + ".jsonl")).read())


def resume(m, whole, *options):
    """A resumed training is bitwise identical to the uninterrupted training WHOLE."""
    folder = m.path(whole + "-checkpoints")
    saved = [*options_of(m, "lenet"), *options, "--checkpoint-path", folder]
    train(m, "gpu", whole + "-half", saved, "--epochs", 1)
    train(m, "gpu", whole + "-rest", saved, "--resume", folder)
    join(m, whole + "-half", whole + "-rest", whole + "-joined")
    compare(m, whole, whole + "-joined")


def fp16(m):
    """Close to the CPU's curve; recovers from a loss scale that is too large; bitwise identical after a resume."""
    curve(m, "lenet", "fp16", "5:1e-2:0.4")
    train(m, "gpu", "skipped", options_of(m, "lenet"), "--precision", "fp16", "--loss-scale", 1e9)
    steps = steps_of(m, "skipped")
    skipped = [s["step"] for s in steps if s.get("skipped")]
    m.say(f"{len(skipped)} of {len(steps)} steps skipped, scale {steps[0]['loss_scale']:g} -> {steps[-1]['loss_scale']:g}, "
          f"loss {steps[0]['loss']:.3f} -> {steps[-1]['loss']:.3f}")
    require(skipped and steps[0].get("skipped") and not steps[-1].get("skipped"), "not only early steps were skipped")
    require(abs(steps[-1]["loss_scale"] * 2 ** len(skipped) - 1e9) < 1e3, "a skipped step did not halve the scale")
    require(m.fake or steps[-1]["loss"] < steps[0]["loss"] / 2, "the loss did not fall")
    options = ["--precision", "fp16", "--loss-scale-interval", 7]
    train(m, "gpu", "whole16", options_of(m, "lenet"), *options)
    resume(m, "whole16", *options)


def several(m, pool, count):
    """Several workers on one GPU have the curve of one worker and bitwise identical weights."""
    up_several(m, pool, count)
    m.run("gradpool", "status", "--pool", pool)
    train(m, pool, pool, options_of(m, "lenet"), "--precision", "f32", "--workers", count)
    compare(m, "lenet-gpu", pool, "5:5e-4:0.4")
    weights = dict(re.findall(r'event=weights .*rank (\d+) of.* at step (.*)"', logs(m, pool)))
    m.say(str(weights))
    require_joined(m, pool, count)
    require(len(weights) == count and len(set(weights.values())) == 1, "the weights of the ranks differ")


def killed(m):
    """The training continues with the other worker and with the replacement, and reports every step once."""
    for epochs in (10, 80, 640, 5120):  # a short training may end before the kill
        if killed_once(m, epochs):
            break
    train(m, "twice", "after", options_of(m, "lenet"), "--workers", 2)


def killed_once(m, epochs):
    """Return false if the training ended before the worker was killed."""
    pid = pids(m, "twice")[1]
    metrics = m.path("killed.jsonl")
    if os.path.exists(metrics):
        os.remove(metrics)
    training = m.start_apart("killed", "gradpool", "train", "--pool", "twice", "--metrics", metrics, "--plots", "none", "--seed", 3,
                             "--validation-data", "none", "--out", m.path("killed.onnx"), *options_of(m, "lenet"), "--workers", 2,
                             "--epochs", epochs)
    until(lambda: training.poll() is not None or os.path.exists(metrics) and len(open(metrics).readlines()) >= 20)
    os.kill(pid, 9)
    m.say(f"worker 2 (pid {pid}) was killed")
    code = training.wait()
    out = open(m.path("killed")).read()
    m.say("\n".join(line for line in out.splitlines() if re.search("worker 2|killed", line, re.I)))
    if code == 0 and f"pid {pid}" not in out:
        return False
    require(code == 0, f"the training ended with exit code {code}:\n{out[-2000:]}")
    rows = steps_of(m, "killed")
    gap = max(b["seconds"] - a["seconds"] for a, b in zip(rows, rows[1:]))
    m.say(f"{len(rows)} steps; longest pause {gap:.2f} s")
    require([row["step"] for row in rows] == list(range(1, len(rows) + 1)), "a step is missing or reported twice")
    require(m.fake or gap <= 15, "the pause is longer than 15 s")
    return True


# ---- speed ----

def bench(m, network, batch, precision, *options, kernels="", seconds=3):
    """Run bench_step. Return its output."""
    if m.fake:
        network, batch, seconds = fake_network(m, "lenet"), 4, 0.05
    return m.run("bench_step", "--device", "cuda", "--network", network, "--batch", batch, "--precision", precision, "--momentum", 0.9,
                 "--seconds", seconds, *options, env={"GRADPOOL_CUDA_KERNELS": kernels} if kernels else None)


def require_graphs(out):
    """Require that the steps were graphs: a prediction that cannot be recorded is launched step by step."""
    require("; as graphs" in out, "the device launched each step, and no graph: " +
            next((line for line in out.splitlines() if line.startswith("step by step: ")), "no reason is known"))


def works(m, network, batch, precision):
    """A step runs, without timed engines."""
    require_graphs(bench(m, network, batch, precision, "--tune", 0, seconds=1))


# Predictions always copy their samples.
PHASES = {"train": [], "copied": ["--input", "copied"], "infer": ["--phase", "infer"]}


def library_steps(m, network, phase):
    """Return the numbers of convolutions and products in a plan. None: not known."""
    if m.fake:
        kinds = ["conv", "fc"]  # of fake_network()
    elif network in predict.NETWORKS:
        kinds = [layer.kind for layer in predict.layers_of(network)]
    else:
        return None
    convolutions, products = kinds.count("conv"), kinds.count("fc")
    return (convolutions, products) if phase == "infer" else (3 * convolutions - 1, 3 * products)  # the first has no data gradient


def require_libraries(m, out, network, phase):
    """Require that the libraries, or the kernels for few channels, execute every convolution and product."""
    found = re.search(r"(\d+) of them cuDNN's, (\d+) cuBLASLt's, (\d+) direct", out)
    expected = library_steps(m, network, phase)
    require(found is not None, "bench_step printed no numbers of library steps")
    require(expected in (None, (int(found[1]) + int(found[3]), int(found[2]))),
            f"cuDNN executes {found[1]} convolutions and cuBLASLt {found[2]} products, kernels for few channels {found[3]}, not {expected}: "
            "the others run on slow kernels")


def ours(m, network, batch, precision, phase="train", program="gradpool", *options):
    out = bench(m, network, batch, precision, *PHASES[phase], *options)
    first = next(line for line in out.splitlines() if " images/s" in line)
    m.measured(f"{network} {phase}", batch, precision, program, first)
    m.speed(f"{network}-{phase}-{precision}", program, re.search(r"median ([0-9.]+);", first)[1])
    require_libraries(m, out, network, phase)
    require_graphs(out)


def profile(m, network, batch, precision):
    out = bench(m, network, batch, precision, "--profile", "kinds", seconds=1)
    if not m.fake and network in predict.NETWORKS:
        with open(m.path("profile"), "w") as file:
            file.write(out)
        m.run("predict.py", "--compare", m.path("profile"), "--network", network, "--precision", precision, "--batch", batch)


def by_rule(m):
    """Timed engines, which the other trainings use, and engines by rule give the same curve."""
    timed = sum(open(path).read().count('"how"') for path in glob.glob(f"{m.cache}/gradpool/plans/*.json"))
    m.say(f"{timed} layers timed so far")
    require(timed > 0, "no engine was timed")
    train(m, "gpu", "lenet-rule", options_of(m, "lenet"), "--precision", "f32", "--autotune-seconds", 0)
    compare(m, "lenet-gpu", "lenet-rule", "5:5e-4:0.4")


def epoch(m):
    """Epochs of 60,000 images of 28 x 28 pixels, like Fashion-MNIST: the best of two after the first."""
    options = options_of(m, "lenet") if m.fake else ["--network", "lenet", "--data", "synthetic:28x28x1:10:60000",
                                                     "--mini-batch-size", 256, "--lr", 0.1]
    train(m, "gpu", "epoch", options, "--precision", "f32", "--epochs", 3)
    steps = steps_of(m, "epoch")
    ends = [max(s["seconds"] for s in steps if s["epoch"] == e) for e in sorted({s["epoch"] for s in steps})]
    best = min(b - a for a, b in zip(ends, ends[1:]))
    line = f"epoch {1e3 * best:.2f} ms, {60000 / best:.0f} images/s; the first step took {1e3 * steps[0]['seconds']:.1f} ms"
    m.say(line)
    m.speed("epoch", "gradpool", f"{1e3 * best:.3f}")
    m.measured("lenet, 60000 images", 256, "f32", "gradpool", line)


def start(m):
    """Time from shell prompt to shell prompt of a training with one step."""
    times = []
    options = options_of(m, "lenet") if m.fake else ["--network", "lenet", "--data", "synthetic:28x28x1:10:256",
                                                     "--mini-batch-size", 256]
    for _ in range(3):
        begin = time.monotonic()
        train(m, "gpu", "start", options, "--precision", "f32", "--epochs", 1)
        times.append(1e3 * (time.monotonic() - begin))
    m.speed("start", "gradpool", f"{min(times):.1f}")
    m.measured("lenet, one step", 256, "f32", "gradpool", f"{min(times):.1f} ms from prompt to prompt, running pool")


def ncu(m):
    """The longest kernels of a step with their share of the memory's and the arithmetic units' peak rates."""
    if shutil.which("ncu") is None:
        raise Skipped("Nsight Compute (ncu) is not installed")
    m.run("ncu", "--clock-control", "none", "--csv", "--page", "raw", "--launch-skip", 1500, "--launch-count", 500, "--metrics",
          "gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed",
          *m.command("bench_step", "--device", "cuda", "--network", "resnet50", "--batch", 256, "--precision", "bf16", "--momentum", 0.9,
                     "--seconds", 0.1), env={"GRADPOOL_CUDA_KERNELS": "eager", "GRADPOOL_GPU_TIMEOUT": "600"})


# ---- peers ----

def torch(m, network, batch, precision, mode, phase="train"):
    """The same step in PyTorch."""
    key = "deeplabv3plus" if network.startswith("deeplab") else network
    if m.fake:  # PyTorch has no fake: check the reading of its result
        out = m.run(sys.executable, "-c", 'print(\'{"images_per_second": 1.0}\')')
    else:
        if importlib.util.find_spec("torch") is None:
            raise Skipped("PyTorch is not installed")
        out = m.run("bench.py", network, batch, precision, mode, 3, phase)
    m.speed(f"{key}-{phase}-{precision}", mode, re.search(r'"images_per_second": ([0-9.]+)', out)[1])
    m.measured(f"{network} {phase}", batch, precision, f"PyTorch {mode}", out.strip().splitlines()[-1])


def torch_profile(m, network, batch, precision):
    """The kernels of PyTorch's step that take longest, to compare with the profile of gradpool's."""
    if m.fake or importlib.util.find_spec("torch") is None:
        raise Skipped("PyTorch is not installed" if not m.fake else "PyTorch has no fake")
    m.run("bench.py", network, batch, precision, "profile")


def fused(m):
    """Fused layers and separate layers give the same curve, in float32 up to rounding."""
    with Instead(m, "apart", GRADPOOL_CUDA_KERNELS="apart"):
        for name, rule in (("lenet", "5:5e-4:0.4"), ("resnet", "3:1e-2:0.4")):
            train(m, "apart", f"{name}-apart", options_of(m, name), "--precision", "f32")
            compare(m, f"{name}-gpu", f"{name}-apart", rule)


def predicted(m):
    """Batch norm folded into convolutions: the loss on new samples is the CPU's."""
    cpu = json.load(open(m.path("predicted-cpu.json")))["loss"]
    for precision, allowed in (("f32", 1e-4), ("tf32", 1e-2), ("bf16", 5e-2), ("fp16", 1e-2)):
        evaluate(m, "gpu", f"predicted-{precision}", precision)
        gpu = json.load(open(m.path(f"predicted-{precision}.json")))["loss"]
        m.say(f"{precision}: loss {gpu:.6f}, the CPU's {cpu:.6f}")
        require(abs(gpu - cpu) <= allowed * max(1, abs(cpu)), f"{precision}: the losses differ by more than {allowed:g}")


def solvers(m):
    for solver in SOLVERS:
        train(m, "gpu", f"{solver}-gpu", solver_options(m, solver), "--precision", "f32")
        compare(m, f"{solver}-cpu", f"{solver}-gpu", "3:1e-3:0.4")


def idle(m):
    """A worker without work is replaced by one that leaves the GPU closed; the next training matches the first."""
    with Instead(m, "idle", GRADPOOL_GPU_IDLE="1"):
        train(m, "idle", "rested", options_of(m, "lenet"))
        pid = pids(m, "idle")[0]
        until(lambda: pids(m, "idle")[0] not in (0, pid), 0.3)
        if m.fake:
            released = f"^{pid} context destroyed, 0 blocks, 0 streams and events left"
            require(re.search(released, open(f"{m.work}/trace").read(), re.M), "the worker left memory on the GPU")
        else:
            m.run("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader")
        train(m, "idle", "rested-again", options_of(m, "lenet"))
        compare(m, "rested", "rested-again")


def first(m):
    """Startup costs of the first step: context, plans, NCCL."""
    up_several(m, "first", 2)
    train(m, "first", "first", options_of(m, "resnet"), "--workers", 2, "--precision", "bf16")
    require_joined(m, "first", 2)
    longest = {}
    for event, ms in re.findall(r"event=(backend-open|plan-compiled|gpu-joined) .*(?:after|in) ([0-9.]+) ms", logs(m, "first")):
        longest[event] = max(longest.get(event, 0), float(ms))
    names = {"backend-open": "context", "plan-compiled": "plans", "gpu-joined": "nccl"}
    m.say(", ".join(f"{names[e]} {ms:.1f} ms" for e, ms in longest.items()) +
          f"; the step itself {1e3 * steps_of(m, 'first')[0]['seconds']:.1f} ms")
    for event, ms in longest.items():
        m.speed(names[event], "gradpool", ms)
    require(set(longest) == set(names), f"the logs have only {', '.join(longest)}")


def hangs(m):
    time.sleep(1000)


def fails_instead(m):
    with Instead(m, "fails"):
        raise Failed("as intended")


# ---- the table ----

# needs: rows that must have passed; they run first, also when they belong to another part
# limit_s: the row is ended after this time; usual_s: expected on an H200
Row = collections.namedtuple("Row", "name part needs limit_s usual_s title function arguments")


def row(name, part, needs, limit_s, usual_s, title, function, *arguments):
    return Row(name, part, needs.split(), limit_s, usual_s, title, function, arguments)


ROWS = [
    row("machine", "right", "", 60, 6, "driver, probe, devices", machine),
    row("doctor", "right", "", 60, 8, "the doctor finds no failure", doctor),
    row("properties", "right", "", 30, 3, "cuDNN's properties of the device", properties),
    row("plugin", "right", "", 90, 12, "load, a kernel compared with the host, an NCCL id", plugin),
    row("lenet-runs", "right", "", 60, 6, "bench_step runs", works, "lenet", 256, "f32"),
    row("resnet50-runs", "right", "", 60, 10, "bench_step runs", works, "resnet50", 64, "bf16"),
    row("kinds", "right", "", 240, 88, "each layer kind against the float64 oracle, in each precision", kinds),
    row("pool", "right", "", 60, 6, "a pool on the GPU", pool),
    row("lenet", "right", "pool", 60, 6, "LeNet: curve as on the CPU", curve, "lenet", "f32", "5:5e-4:0.4"),
    row("resnet", "right", "pool", 90, 12, "ResNet-18: curve as on the CPU", curve, "resnet", "f32", "3:1e-2:0.4"),
    row("repeat", "right", "lenet", 60, 4, "repeated training: bitwise identical", repeat),
    row("resume", "right", "lenet", 60, 6, "resumed training: bitwise identical", resume, "lenet-gpu", "--precision", "f32"),
    row("two", "right", "lenet", 90, 15, "two workers on one GPU: the curve of one, equal weights", several, "twice", 2),
    row("killed", "right", "two", 90, 15, "one of two workers killed: the training continues, and the pool recovers", killed),
    row("eager", "right", "lenet", 60, 8, "graphs and eager steps: bitwise identical", kernels, "eager"),
    row("fed", "right", "lenet", 60, 8, "data from the host and data on the GPU: bitwise identical", kernels, "fed"),
    row("bf16", "right", "pool", 60, 5, "LeNet in bf16: curve close to the CPU's", curve, "lenet", "bf16", "5:3e-2:0.4"),
    row("tf32", "right", "pool", 60, 5, "LeNet in TF32: curve close to the CPU's", curve, "lenet", "tf32", "5:1e-2:0.4"),
    row("fp16", "right", "pool", 90, 15, "LeNet in fp16: curve, skipped steps, resumed bitwise identically", fp16),

    row("lenet-f32", "speed", "", 90, 15, "LeNet, training", ours, "lenet", 256, "f32"),
    row("lenet-bf16", "speed", "", 90, 15, "LeNet, training", ours, "lenet", 256, "bf16"),
    row("resnet50", "speed", "", 90, 32, "ResNet-50, training", ours, "resnet50", 256, "bf16"),
    row("resnet50-infer", "speed", "", 90, 12, "ResNet-50, prediction", ours, "resnet50", 256, "bf16", "infer"),
    row("resnet50-rule", "speed", "", 90, 12, "ResNet-50, training, engines by rule", ours, "resnet50", 256, "bf16", "train", "by-rule",
        "--tune", 0),
    row("alexnet", "speed", "", 90, 30, "AlexNet, training", ours, "alexnet", 256, "bf16"),
    row("deeplab", "speed", "", 90, 35, "DeepLab v3+, training", ours, "deeplabv3plus", 16, "bf16"),
    *(row(f"profile-{name}", "speed", "", 60, 8, "times by operation and kernel", profile, network, batch, precision)
      for name, network, batch, precision in (
          ("lenet-f32", "lenet", 256, "f32"), ("lenet-bf16", "lenet", 256, "bf16"), ("resnet50", "resnet50", 256, "bf16"),
          ("alexnet", "alexnet", 256, "bf16"), ("deeplab", "deeplabv3plus", 16, "bf16"))),
    row("epoch", "speed", "pool", 60, 8, "one epoch, 60,000 small images", epoch),
    row("start", "speed", "pool", 30, 4, "from prompt to first step", start),
    row("by-rule", "speed", "lenet", 60, 5, "timed engines and engines by rule: the same curve", by_rule),
    row("alexnet-copied", "speed", "", 90, 12, "AlexNet, training, samples copied in each step", ours, "alexnet", 256, "bf16", "copied"),
    row("ncu", "speed", "", 120, 60, "ResNet-50: kernels with their share of the peak rates", ncu),

    *(row(f"torch-{network}-{precision}-{mode}" + ("" if phase == "train" else f"-{phase}"), "peers", "", limit, usual,
          f"PyTorch, {mode}", torch, network, batch, precision, mode, phase)
      for network, batch, precision, mode, phase, limit, usual in (
          ("resnet50", 256, "bf16", "eager", "train", 100, 16), ("resnet50", 256, "bf16", "eager", "infer", 100, 14),
          ("alexnet", 256, "bf16", "eager", "train", 100, 14), ("alexnet", 256, "bf16", "eager", "copied", 100, 14),
          ("lenet", 256, "f32", "eager", "train", 100, 10),
          ("lenet", 256, "f32", "graph", "train", 100, 10), ("lenet", 256, "bf16", "eager", "train", 100, 10),
          ("lenet", 256, "bf16", "graph", "train", 100, 10), ("deeplabv3_resnet50", 16, "bf16", "eager", "train", 100, 20),
          ("resnet50", 256, "bf16", "compile", "train", 150, 90), ("resnet50", 256, "bf16", "compile", "infer", 150, 45),
          ("alexnet", 256, "bf16", "compile", "train", 150, 35))),
    row("torch-profile", "peers", "", 100, 14, "PyTorch: the longest kernels of ResNet-50", torch_profile, "resnet50", 256, "bf16"),
    row("idle", "peers", "pool", 90, 14, "a worker without work is replaced and releases its GPU", idle),
    row("first", "peers", "pool", 60, 14, "first step: context, plans and NCCL", first),
    row("four", "peers", "lenet", 90, 20, "four workers on one GPU: the curve of one, equal weights", several, "four", 4),
    row("predicted", "peers", "pool", 90, 14, "prediction with batch norm folded: the CPU's loss", predicted),
    row("solvers", "peers", "pool", 60, 12, "adam, adamw, rmsprop, clipping: the CPU's curves", solvers),
    row("fused", "peers", "lenet resnet", 90, 18, "fused and separate layers: the same curves", fused),

    row("fails-instead", "test", "lenet", 60, 0.1, "a row that fails while it uses another pool", fails_instead),
    row("again", "test", "lenet", 60, 0.1, "a repeated training, after fails-instead", repeat),
    row("hangs", "test", "", 60, 0.1, "a row that hangs, for tests/gpu/rehearsal", hangs),
]
