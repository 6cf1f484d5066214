#!/usr/bin/env python3
"""peers_sweep.py: the sweeps of `run_sweep lenet`, `run_sweep resnet` and `run_sweep overhead` with other programs.

    peers_sweep.py lenet|resnet FOLDER SEED TRIALS EPOCHS     Optuna's TPE and PyTorch
    peers_sweep.py ray|ray-reuse|optuna FOLDER COUNT          COUNT empty trials, two at a time: seconds, without the start
                                                              of Ray or of the two processes; ray-reuse: several trials
                                                              share a process (reuse_actors)

Two processes with one thread each train; the samples are in their memory before the first trial. Prints the best validation
accuracy after the last epoch, the number of failed trials, the seconds from the first to the last trial, and the best learning
rate, momentum, mini-batch size and weight decay. PyTorch is eager, because torch.compile takes longer than a trial, with channels last, its faster layout here.

lenet: FOLDER has Fashion-MNIST as IDX files; resnet: FOLDER has the images train/CLASS/NAME and test/CLASS/NAME. The networks,
distributions of initial weights, and options are those of `gradpool train`.

Needs a Python with torch, optuna and pillow; ray[tune] for ray."""
import ctypes
import math
import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy

PROCESSES = 2
PR_SET_PDEATHSIG = 1  # see prctl(2)
NAMES = "lr", "momentum", "batch", "decay"  # of the options, in the order of the results
samples = {}  # "train" and "test": tensors of images and labels, set by prepare()


def end_with_parent():
    """Let the kernel kill this process when the one that started it exits, for example because it was interrupted."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        sys.exit("the process that started this one is gone")


def idx_of(folder, kind):
    """Return the images, (N, 1, 28, 28) in [0, 1], and the labels of a pair of IDX files."""
    images, labels = (numpy.fromfile(os.path.join(folder, kind + name), dtype=numpy.uint8) for name in (
        "-images-idx3-ubyte", "-labels-idx1-ubyte"))
    return images[16:].reshape(-1, 1, 28, 28).astype("float32") / 255, labels[8:].astype("int64")


def lenet():
    from torch import nn

    net = nn.Sequential(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
                        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
    for parameter in net.parameters():
        nn.init.xavier_uniform_(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)
    return net


def new_network(kind):
    import torch

    import cifar

    return (lenet() if kind == "lenet" else cifar.torch_network(cifar.WIDTH)).to(memory_format=torch.channels_last)


def prepare(kind, folder):
    """Set up a process: read the samples and import PyTorch completely."""
    end_with_parent()
    import torch

    import cifar

    os.setsid()  # like a worker of gradpool: on a busy machine, Linux divides the processors between sessions
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    parts = [("train", "train"), ("test", "t10k" if kind == "lenet" else "test")]
    for part, name in parts:
        images, labels = idx_of(folder, name) if kind == "lenet" else cifar.images_of(os.path.join(folder, name))
        samples[part] = torch.from_numpy(images).to(memory_format=torch.channels_last), torch.from_numpy(labels)
    torch.optim.SGD(new_network(kind).parameters(), lr=0.1).step()  # import the modules that PyTorch imports on use


def accuracy_of(net):
    import torch

    net.eval()
    with torch.no_grad():
        right = sum(int((net(x).argmax(1) == y).sum()) for x, y in zip(*(part.split(500) for part in samples["test"])))
    net.train()
    return right / len(samples["test"][1])


def train(kind, epochs, seed, lr, momentum, batch, decay):
    """Return the accuracy after the last epoch, or NaN if a loss is not finite."""
    import torch

    torch.manual_seed(seed)
    net, (images, labels) = new_network(kind), samples["train"]
    biases = [parameter for name, parameter in net.named_parameters() if name.endswith("bias")]
    others = [parameter for name, parameter in net.named_parameters() if not name.endswith("bias")]
    optimizer = torch.optim.SGD([{"params": others, "weight_decay": decay}, {"params": biases}], lr=lr, momentum=momentum)
    for _ in range(epochs):
        for index in torch.randperm(len(labels)).split(batch):
            x = images[index]
            if kind == "resnet":
                mirrored = torch.rand(len(index)) < 0.5
                x[mirrored] = x[mirrored].flip(3)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x.contiguous(memory_format=torch.channels_last)), labels[index])
            if not math.isfinite(loss.item()):
                return math.nan
            loss.backward()
            optimizer.step()
        accuracy = accuracy_of(net)
    return accuracy


def main(kind, folder, seed, trials, epochs):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True))
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), prepare, (kind, folder)) as processes:

        def objective(trial):
            values = (trial.suggest_float("lr", 1e-3, 0.5, log=True), trial.suggest_float("momentum", 0.5, 0.95),
                      trial.suggest_categorical("batch", [32, 64, 128]), trial.suggest_float("decay", 1e-6, 1e-2, log=True))
            return processes.submit(train, kind, epochs, seed, *values).result()

        for started in [processes.submit(time.sleep, 1) for _ in range(PROCESSES)]:
            started.result()
        begin = time.monotonic()
        study.optimize(objective, n_trials=trials, n_jobs=PROCESSES)
        seconds = time.monotonic() - begin
    states = [trial.state for trial in study.trials]
    print(study.best_value, states.count(optuna.trial.TrialState.FAIL), seconds, *(study.best_params[name] for name in NAMES))


def empty_ray(folder, count, reuse=False):
    """Run empty function trainables of Ray Tune, each with one of two processors."""
    import ray
    from ray import tune

    ray.init(num_cpus=PROCESSES, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    tuner = tune.Tuner(tune.with_resources(lambda config: tune.report({"value": config["seed"]}), {"cpu": 1}),
                       param_space={"seed": tune.grid_search(list(range(count)))},
                       tune_config=tune.TuneConfig(reuse_actors=reuse),
                       run_config=tune.RunConfig(storage_path=os.path.abspath(folder), verbose=0))
    begin = time.monotonic()
    results = tuner.fit()
    seconds = time.monotonic() - begin
    done = sum(result.metrics is not None and "value" in result.metrics for result in results)
    ray.shutdown()
    return seconds, done


def optuna_process(path, count, ready, go):
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    end_with_parent()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(study_name="empty", storage=JournalStorage(JournalFileBackend(path)),
                              sampler=optuna.samplers.RandomSampler())
    ready.release()
    go.wait()
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=count)


def empty_optuna(folder, count):
    """Run empty trials in two processes that share Optuna's journal."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = os.path.join(folder, "optuna.log")
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    optuna.create_study(study_name="empty", storage=JournalStorage(JournalFileBackend(path)))
    processes = [context.Process(target=optuna_process, args=(path, count // PROCESSES, ready, go)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    begin = time.monotonic()
    go.set()
    for process in processes:
        process.join()
    seconds = time.monotonic() - begin
    study = optuna.load_study(study_name="empty", storage=JournalStorage(JournalFileBackend(path)))
    return seconds, sum(trial.state == optuna.trial.TrialState.COMPLETE for trial in study.trials)


if __name__ == "__main__":
    end_with_parent()
    if sys.argv[1] in ("ray", "ray-reuse"):
        print(*empty_ray(sys.argv[2], int(sys.argv[3]), sys.argv[1] == "ray-reuse"))
    elif sys.argv[1] == "optuna":
        print(*empty_optuna(sys.argv[2], int(sys.argv[3])))
    else:
        main(*sys.argv[1:3], *map(int, sys.argv[3:]))
