"""Compare event files with what TensorBoard reads: in a process of its own, and as a server.

  read_events.py WRITE_EVENTS [SEED]
"""

import glob
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.error

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from checks import check, finish
from event_reader import fetch, hparams_of, read, running_server

SCALARS = 200
TEXT = "| option | value |\n|---|---|\n| solver | adam |"


def write(folder):
    os.makedirs(folder)
    subprocess.run([sys.argv[1], folder, str(SCALARS)], check=True)
    (path,) = glob.glob(folder + "/events.out.tfevents.*")
    return path


def scalars(events, tag):
    return [(e.step, e.wall_time, e.value) for e in events.Scalars(tag)]


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def check_contents(events):
    expected = [(i, 1000.5 + i, 1.0 / i) for i in range(1, SCALARS + 1)]
    found = scalars(events, "loss/train")
    check([e[:2] for e in found] == [e[:2] for e in expected], "steps and times of loss/train")
    check(all(abs(f[2] - e[2]) < 1e-7 for f, e in zip(found, expected)), "values of loss/train")
    found = scalars(events, "accuracy/validation")
    check([f[0] for f in found] == list(range(1, SCALARS + 1)), "steps of accuracy/validation")
    check(all(same(f[2], math.nan if i % 7 == 0 else 0.25) for i, f in enumerate(found, 1)), "NaN in a curve")
    found = [f[0] for f in scalars(events, "learn_rate")]
    check(found == [i * 100000000 for i in range(1, SCALARS + 1)], "steps above 2^31")
    (text,) = events.Tensors("options")
    check(text.tensor_proto.string_val[0].decode() == TEXT, "text")
    check(events.SummaryMetadata("options").plugin_data.plugin_name == "text", "plugin of the text")


def check_hparams(events):
    experiment = hparams_of(events, "_hparams_/experiment").experiment
    check([h.name for h in experiment.hparam_infos] == ["solver", "initial-learn-rate", "shuffle"], "hparam columns")
    check([m.name.tag for m in experiment.metric_infos] == ["loss/train", "accuracy/validation"], "metric columns")
    start = hparams_of(events, "_hparams_/session_start_info").session_start_info
    check(start.hparams["solver"].string_value == "adam", "text hparam")
    check(start.hparams["initial-learn-rate"].number_value == 0.01, "number hparam")
    check(start.hparams["shuffle"].bool_value is True, "bool hparam")
    check(start.group_name == "lenet" and start.start_time_secs == 1000.5, "session start")
    end = hparams_of(events, "_hparams_/session_end_info").session_end_info
    check(end.status == 1 and end.end_time_secs == 2000.25, "session end")


def check_cuts(path, folder, draw):
    """A file that ends anywhere is read up to the last complete record."""
    data = open(path, "rb").read()
    ends, at = [], 0
    while at < len(data):
        at += 16 + int.from_bytes(data[at:at + 8], "little")
        ends.append(at)
    for i in range(50):
        cut = draw.randrange(1, len(data))
        os.makedirs(f"{folder}/{i}")
        with open(f"{folder}/{i}/events.out.tfevents.1.h.1.0", "wb") as out:
            out.write(data[:cut])
        records = sum(end <= cut for end in ends)
        events = read(f"{folder}/{i}")
        found = sum(len(events.Scalars(tag)) for tag in events.Tags()["scalars"])
        # before the scalars: version, text, and two records of hyperparameters; after them: the end
        check(found == min(max(records - 4, 0), 3 * SCALARS), f"cut at byte {cut}: {found} scalars, {records} records")


def check_server(folder):
    with running_server(folder) as base:
        tags = {}
        end = time.monotonic() + 60
        while not tags.get("one") and time.monotonic() < end:
            try:
                tags = fetch(base + "/plugin/scalars/tags")
            except urllib.error.URLError:
                pass
            time.sleep(0.1)
        check(sorted(tags.get("one", {})) == ["accuracy/validation", "learn_rate", "loss/train"], f"curves of the server: {tags}")
        rows = fetch(base + "/plugin/scalars/scalars?run=one&tag=loss%2Ftrain")
        check([r[:2] for r in rows] == [[1000.5 + i, i] for i in range(1, SCALARS + 1)], "curve from the server")
        texts = fetch(base + "/plugin/text/tags")
        check(texts.get("one") == ["options"], f"texts of the server: {texts}")
        groups = fetch(base + "/plugin/hparams/session_groups", json.dumps({
            "experimentName": "", "allowedStatuses": ["STATUS_SUCCESS"], "colParams": [{"hparam": "solver"}],
            "startIndex": 0, "sliceSize": 10}).encode())
        found = groups.get("sessionGroups", [])
        check(len(found) == 1 and found[0]["hparams"]["solver"] == "adam", f"hyperparameters from the server: {groups}")


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print("seed", seed)
    with tempfile.TemporaryDirectory() as root:
        path = write(root + "/runs/one")
        events = read(root + "/runs/one")
        check_contents(events)
        check_hparams(events)
        check_cuts(path, root + "/cuts", random.Random(seed))
        check_server(root + "/runs")
    finish()


main()
