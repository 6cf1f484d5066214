#!/usr/bin/env python3
"""peers_search.py: Optuna on the functions of search_functions.c.

    peers_search.py FUNCTION tpe|gp|random PENDING SEED TRIALS...   the regret after each number of trials, and the processor
                                                                    time of an ask in ms
    peers_search.py FUNCTION --value JSON                           a value
    peers_search.py --table FILE tpe|random SEEDS TRIALS            the regret in accuracy of each seed from 1 on, replayed on
                                                                    a table of trainings (sweep_table.csv)
    peers_search.py --asks gp|tpe COUNT DIMENSIONS                  the median time of an ask with COUNT finished trials

Needs a Python with optuna, and PyTorch for gp (pip install optuna torch). The number of threads is OMP_NUM_THREADS."""
import json
import math
import sys
import time

HARTMANN_A = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
HARTMANN_P = [[0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886], [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
              [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650], [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381]]


def branin(v):
    x, y = v["x"], v["y"]
    return (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6)**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann6(v):
    return -sum(alpha * math.exp(-sum(a * (v[name] - p)**2 for a, p, name in zip(row_a, row_p, "abcdef")))
                for alpha, row_a, row_p in zip([1.0, 1.2, 3.0, 3.2], HARTMANN_A, HARTMANN_P))


def solvers(v):
    lr, batch = math.log10(v["lr"]), math.log2(v["batch"] / 64)
    loss = 0.05 * (v["layers"] - 4)**2 + 0.02 * batch**2
    if v["solver"] == "sgdm":
        return loss + 0.3 + 0.5 * (lr + 1 + (v["momentum"] - 0.9) * 2 - 0.3 * batch)**2 + 3 * (v["momentum"] - 0.9)**2
    if v["solver"] == "adam":
        return loss + 0.8 * (lr + 3 - 0.15 * batch)**2 + 0.2 * (math.log10(v["decay"]) + 2)**2
    return loss + 0.15 + 0.8 * (lr + 3.5 - 0.15 * batch)**2 + 0.3 * (math.log10(v["decay"]) + 1.5)**2


def networks(v):
    width, lr = math.log2(v["width"] / 64), math.log10(v["lr"]) + 2
    loss = {"gelu": 0.0, "relu": 0.08, "tanh": 0.3}[v["activation"]] + (0.0 if v["augment"] else 0.1)
    loss += 0.4 * (lr + 0.2 * width)**2 + 0.1 * (1 - math.cos(4 * lr))
    if v["kind"] == "cnn":
        return loss + 0.06 * (v["depth"] - 5)**2 + 0.04 * width**2 + 0.05 * (1 - math.cos(3 * width))
    return loss + 0.2 + 0.03 * (width - 2)**2 + (v["dropout"] - 0.4)**2


def suggest_branin(t):
    return {"x": t.suggest_float("x", -5, 10), "y": t.suggest_float("y", 0, 15)}


def suggest_hartmann6(t):
    return {name: t.suggest_float(name, 0, 1) for name in "abcdef"}


def suggest_solvers(t):
    v = {"solver": t.suggest_categorical("solver", ["sgdm", "adam", "rmsprop"]), "lr": t.suggest_float("lr", 1e-5, 1, log=True)}
    if v["solver"] == "sgdm":
        v["momentum"] = t.suggest_float("momentum", 0, 0.99)
    else:
        v["decay"] = t.suggest_float("decay", 1e-4, 0.1, log=True)
    v["batch"] = t.suggest_categorical("batch", [16, 32, 64, 128, 256])
    v["layers"] = t.suggest_int("layers", 1, 6)
    return v


def suggest_networks(t):
    v = {"kind": t.suggest_categorical("kind", ["cnn", "mlp"]), "width": t.suggest_int("width", 8, 512, log=True)}
    if v["kind"] == "cnn":
        v["depth"] = t.suggest_int("depth", 1, 8)
    else:
        v["dropout"] = t.suggest_float("dropout", 0, 0.8)
    v["activation"] = t.suggest_categorical("activation", ["relu", "tanh", "gelu"])
    v["augment"] = t.suggest_categorical("augment", [True, False])
    v["lr"] = t.suggest_float("lr", 1e-4, 1, log=True)
    return v


FUNCTIONS = {
    "branin": (branin, suggest_branin, 0.39788735772973816),
    "hartmann6": (hartmann6, suggest_hartmann6, -3.32236801141551),
    "solvers": (solvers, suggest_solvers, 0.0),
    "networks": (networks, suggest_networks, 0.0),
}


def new_study(method, seed, direction="minimize"):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {"tpe": optuna.samplers.TPESampler, "gp": optuna.samplers.GPSampler, "random": optuna.samplers.RandomSampler}
    return optuna.create_study(direction=direction, sampler=samplers[method](seed=seed))


def run(name, method, pending, seed, budgets):
    function, suggest, minimum = FUNCTIONS[name]
    study = new_study(method, seed)
    waiting, best, asked, spent = [], math.inf, 0, 0.0
    for done in range(1, budgets[-1] + 1):
        while asked < budgets[-1] and len(waiting) < pending:
            begin = time.process_time()
            trial = study.ask()
            values = suggest(trial)
            spent += time.process_time() - begin
            waiting.append((trial, function(values)))
            asked += 1
        trial, value = waiting.pop(0)
        study.tell(trial, value)
        best = min(best, value)
        if done in budgets:
            print("%.6g" % (best - minimum), end=" ")
    print("%.3f" % (1000 * spent / budgets[-1]))


def replay(path, method, seeds, trials):
    """Options with numbers are integers, their position in the list: so Optuna knows their order."""
    import csv

    import optuna

    with open(path) as file:
        rows = list(csv.reader(file))
    names, rows = rows[0][:-2], rows[1:]
    values = [list(dict.fromkeys(row[i] for row in rows)) for i in range(len(names))]
    is_number = [all(value[0].isdigit() for value in column) for column in values]
    for seed in range(1, seeds + 1):
        accuracy = {tuple(row[:-2]): float(row[len(names) + seed % 2] or "nan") for row in rows}
        study, best = new_study(method, seed, "maximize"), -math.inf
        for _ in range(trials):
            trial = study.ask()
            point = tuple(column[trial.suggest_int(name, 0, len(column) - 1)] if ordered else trial.suggest_categorical(name, column)
                          for name, column, ordered in zip(names, values, is_number))
            if math.isnan(accuracy[point]):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            study.tell(trial, accuracy[point])
            best = max(best, accuracy[point])
        print("%.6g" % (max(value for value in accuracy.values() if not math.isnan(value)) - best), flush=True)


def measure_asks(method, count, dimensions):
    import random

    import optuna

    study, draw, times = new_study(method, 1), random.Random(1), []
    space = {"p%d" % k: optuna.distributions.FloatDistribution(0, 1) for k in range(dimensions)}

    def value(v):
        return sum((k + 1) * math.cos(5 * (v["p%d" % k] - 0.1 * k)) for k in range(dimensions))

    for _ in range(count):
        v = {name: draw.random() for name in space}
        study.add_trial(optuna.trial.create_trial(params=v, distributions=space, value=value(v)))
    for _ in range(10):
        begin = time.process_time()
        trial = study.ask()
        v = {name: trial.suggest_float(name, 0, 1) for name in space}
        times.append(1000 * (time.process_time() - begin))
        study.tell(trial, value(v))
    print("first %.1f ms, then median %.1f ms, highest %.1f ms" % (times[0], sorted(times[1:])[4], max(times[1:])))


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 4 and arguments[0] == "--asks":
        measure_asks(arguments[1], int(arguments[2]), int(arguments[3]))
    elif len(arguments) == 5 and arguments[0] == "--table":
        replay(arguments[1], arguments[2], int(arguments[3]), int(arguments[4]))
    elif len(arguments) == 3 and arguments[1] == "--value":
        print("%.12g" % FUNCTIONS[arguments[0]][0](json.loads(arguments[2])))
    elif len(arguments) >= 5:
        run(arguments[0], arguments[1], int(arguments[2]), int(arguments[3]), [int(a) for a in arguments[4:]])
    else:
        print(__doc__)
        return 1
    return 0


sys.exit(main())
