"""Read the folders of sweeps as TensorBoard does: each trial is a run with its values as hyperparameters and the objective as metric.

  read_sweeps.py GRADPOOL
"""

import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from checks import check, finish
from event_reader import fetch, hparams_of, read, running_server

try:
    import numpy
except ImportError as error:
    print(f"skipped: no numpy: {error}")
    sys.exit(77)

GRADPOOL = os.path.abspath(sys.argv[1])
CURVE = """for i in 1 2 3; do echo "{\\"step\\": $i, \\"score\\": $i.{x}, \\"note\\": \\"n\\"}" >> $GRADPOOL_METRICS; done"""
FAILS = "test {x} != 2 && echo {x}.5"
NETWORK = {"name": "values", "input": [4, 1, 1], "layers": [{"name": "fc1", "kind": "fc", "outputs": 2}, {"name": "loss", "kind": "mse"}]}


def gradpool(*words):
    result = subprocess.run([GRADPOOL, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(result.returncode == 0, f"gradpool {' '.join(words)}: {result.returncode}\n{result.stdout}")
    return result.stdout


def trials_of(sweep):
    return json.loads(gradpool("sweep", "show", sweep, "--json"))["trials"]


def check_trial(sweep, trial, metric, names):
    """Check one run. `names`: the hyperparameter of each parameter."""
    where, folder = f"trial {trial['trial']} of {sweep}", f"{sweep}/trials/{trial['trial']:04}"
    (_,) = glob.glob(f"{folder}/events.out.tfevents.*")
    events = read(folder)
    experiment = hparams_of(events, "_hparams_/experiment").experiment
    check(metric in [info.name.tag for info in experiment.metric_infos], f"{where}: the metric {metric}")
    columns = [info.name for info in experiment.hparam_infos]
    start = hparams_of(events, "_hparams_/session_start_info").session_start_info
    for name, value in trial["values"].items():
        hparam = start.hparams[names.get(name, name)]
        found = hparam.string_value if isinstance(value, str) else hparam.number_value
        check(names.get(name, name) in columns and found == value, f"{where}: {name} is {found}, not {value}")
    end = hparams_of(events, "_hparams_/session_end_info").session_end_info
    check(end.status == (2 if trial["state"] == "failed" else 1), f"{where}: status {end.status}")
    points = [(point.step, point.value) for point in events.Scalars(metric)] if metric in events.Tags()["scalars"] else []
    if trial["value"] is None:
        check(not points, f"{where}: {points}")
    else:
        check(abs(points[-1][1] - trial["value"]) < 1e-6, f"{where}: {points} ends with {trial['value']}")
    return points


def check_sweep(sweep, count, metric, names):
    trials = trials_of(sweep)
    check(len(trials) == count, f"{sweep}: {len(trials)} trials")
    return [check_trial(sweep, trial, metric, names) for trial in trials]


def check_server(sweep, values):
    """The table of a running TensorBoard has a row for each trial."""
    with running_server(sweep) as base:
        body = json.dumps({"experimentName": "", "allowedStatuses": ["STATUS_SUCCESS"], "colParams": [{"hparam": "x"}],
                           "startIndex": 0, "sliceSize": 100}).encode()
        found, end = {}, time.monotonic() + 60
        while len(found) < len(values) and time.monotonic() < end:
            try:
                for group in fetch(base + "/plugin/hparams/session_groups", body).get("sessionGroups", []):
                    found[group["hparams"]["x"]] = group["metricValues"][0]["value"]
            except (urllib.error.URLError, KeyError, IndexError):
                pass
            time.sleep(0.1)
        check(found.keys() == values.keys() and all(abs(found[x] - values[x]) < 1e-6 for x in values), f"the table is {found}")


def main():
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)
        for name in ("run", "state"):
            os.mkdir(name, 0o700)
        os.environ.update(GRADPOOL_RUNTIME_DIR=root + "/run", GRADPOOL_STATE_DIR=root + "/state")
        rows = numpy.random.default_rng(1).standard_normal((600, 4)).astype("float32")
        numpy.save("x.npy", rows)
        numpy.save("y.npy", rows[:, :2])
        with open("net.json", "w") as file:
            json.dump(NETWORK, file)
        gradpool("up", "--workers", "2")
        try:
            gradpool("sweep", "lr=0.01,0.1", "solver=sgdm,adam", "--folder", "images", "--", "train", "--network", "lenet", "--data",
                     "digits:200", "--epochs", "2")
            points = check_sweep("images", 4, "accuracy/validation", {"lr": "initial-learn-rate"})
            check(all(len(curve) == 2 for curve in points), f"validations: {points}")
            gradpool("sweep", "lr=0.01,0.1", "--objective", "validation-rmse", "--folder", "values", "--", "train", "--network", "net.json",
                     "--data", "x.npy", "--validation-data", "x.npy", "--epochs", "2")
            check_sweep("values", 2, "rmse/validation", {"lr": "initial-learn-rate"})
            gradpool("sweep", "x=1,2,3", "--maximize", "--objective", "score", "--folder", "curves", "--", "sh", "-c", CURVE)
            points = check_sweep("curves", 3, "score", {})
            check([step for step, _ in points[0]] == [1, 2, 3], f"steps: {points}")
            check_server("curves", {1: 3.1, 2: 3.2, 3: 3.3})
            gradpool("sweep", "x=1,2,3", "word=a,b", "--maximize", "--folder", "numbers", "--", "sh", "-c", FAILS, "{word}")
            check_sweep("numbers", 6, "objective", {})
        finally:
            gradpool("down")
    finish()


main()
