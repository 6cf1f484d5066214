"""Kill processes of trainings at random moments, and check that the records are complete.

  records_kill.py GRADPOOL [TRAININGS [SEED]]

Each training resumes in the same run folder until it completes. Then each step is in metrics.jsonl once, in order; the sums of
workers.jsonl equal those of the steps, less those that a killed process had not sent or received; and TensorBoard's curve has no step
twice. If GP_CLOCK_AHEAD names a library for LD_PRELOAD, the clock of the first attempt is ten minutes ahead and goes back later.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checks import check, finish

GRADPOOL = os.path.abspath(sys.argv[1])
TRAININGS = int(sys.argv[2]) if len(sys.argv) > 2 else 4
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
EPOCHS, SAMPLES = 12, 2000
TARGETS = ["client", "scheduler", "worker", "all"]
CLOCK_AHEAD, AHEAD_S = os.environ.get("GP_CLOCK_AHEAD", ""), 600


def status():
    """Return the state of the pool; None: no scheduler replies."""
    result = subprocess.run([GRADPOOL, "status", "--json"], capture_output=True, text=True)
    return json.loads(result.stdout) if result.returncode == 0 else None


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_target(target, client, draw):
    state = status()
    if target in ("client", "all"):
        client.kill()
    if state and target in ("scheduler", "all"):
        kill(state["scheduler"]["pid"])
    if state and target in ("worker", "all"):
        workers = [worker["pid"] for worker in state["workers"] if worker["pid"] > 0]
        for pid in workers if target == "all" else [draw.choice(workers)]:
            kill(pid)


def train(root, name, draw):
    """Train in one folder until the training completes. Return the targets of the kills."""
    kills = []
    ahead = CLOCK_AHEAD != ""
    while True:
        environment = dict(os.environ, LD_PRELOAD=CLOCK_AHEAD) if ahead else os.environ
        ahead = CLOCK_AHEAD != "" and draw.random() < 0.5
        client = subprocess.Popen([GRADPOOL, "train", "--network", "lenet", "--data", f"digits:{SAMPLES}", "--epochs", str(EPOCHS),
                                   "--folder", name, "--checkpoint-path", name + "-ck", "--resume", "auto", "--quiet"],
                                  cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if len(kills) < 3:
            try:
                client.wait(timeout=draw.uniform(0.1, 1.5))
            except subprocess.TimeoutExpired:
                kills.append(draw.choice(TARGETS))
                kill_target(kills[-1], client, draw)
        errors = client.communicate(timeout=120)[1]
        if client.returncode == 0:
            return kills
        check(client.returncode == -signal.SIGKILL, f"{name} after {kills}: exit code {client.returncode}: {errors}")
        if client.returncode != -signal.SIGKILL:
            return kills


def lines(path):
    return [json.loads(line) for line in open(path)]


def check_sums(name, steps, intervals):
    """Check that the intervals of each worker are disjoint, and that they equal the sums of the steps. Metrics have the steps of rank 0."""
    compared, last = 0, {}
    for interval in intervals:
        worker, first, end = interval["worker"], interval["first_step"], interval["step"]
        check(first > last.get(worker, 0), f"{name}: worker {worker} has steps {first} to {end} after step {last.get(worker)}")
        last[worker] = end
        within = [step for step in steps if step["worker"] == worker and first <= step["step"] <= end]
        if len(within) != interval["steps"]:
            continue
        compared += 1
        check(sum(step["samples"] for step in within) == interval["samples"], f"{name}: samples of {interval}")
        for phase, ms in interval["time"].items():
            rounding = 5e-5 * (len(within) + 1)  # of four decimals
            total = sum(step["time"][phase] for step in within)
            check(abs(total - ms) <= rounding + 1e-6 * ms, f"{name}: {phase} of the steps {total}, of {interval}")
    check(compared >= EPOCHS // 2, f"{name}: only {compared} of {len(intervals)} intervals compared")


def check_records(root, name, kills):
    folder = f"{root}/{name}"
    metrics = lines(folder + "/metrics.jsonl")
    steps = [line["step"] for line in metrics if "time" in line]
    # Metrics that a killed client had not received, although the workers had saved the checkpoint after them.
    missing = [step for line in metrics if "missing_steps" in line for step in range(line["step"] - line["missing_steps"] + 1, line["step"] + 1)]
    check(not missing or "client" in kills or "all" in kills, f"{name} after {kills}: missing {missing}")
    count = len(steps) + len(missing)
    check(sorted(steps + missing) == list(range(1, count + 1)), f"{name} after {kills}: each step once, missing {missing}")
    facts = json.load(open(folder + "/facts.json"))
    check(count == facts["steps_per_epoch"] * EPOCHS, f"{name} after {kills}: {count} steps")
    validations = [line["step"] for line in metrics if "validation_loss" in line]
    # A client that is killed may lose the validation of the checkpoint, too.
    lost = sum(step % facts["steps_per_epoch"] == 0 for step in missing) + kills.count("client") + kills.count("all")
    check(validations == sorted(set(validations)) and EPOCHS - lost <= len(validations) <= EPOCHS, f"{name} after {kills}: validations {validations}")
    check("end.json" in os.listdir(folder) and "workers.open" not in os.listdir(folder), f"{name}: files {os.listdir(folder)}")
    intervals = lines(folder + "/workers.jsonl")
    check_sums(f"{name} after {kills}", [line for line in metrics if "time" in line], intervals)
    # Workers measure ten times a second; a short attempt may have no line with a measurement.
    measured = [interval for interval in intervals if "memory_bytes" in interval]
    check(all(interval["memory_bytes"] > 1 << 20 for interval in measured), f"{name}: memory of the workers {measured}")
    # A clock that goes back does not appear in any duration. An attempt without steps, after the last checkpoint, takes 0 s.
    durations = [line["seconds"] for line in metrics + intervals if "seconds" in line] + [json.load(open(folder + "/end.json"))["seconds"]]
    check(0 <= min(durations) and max(durations) < AHEAD_S / 2, f"{name} after {kills}: from {min(durations)} to {max(durations)} s")
    trained = sum(interval["samples"] for interval in intervals)
    # Workers send their records several times a second, each for itself. A killed worker takes the records of its last steps with it,
    # and a killed client those of the workers whose messages it had not received yet.
    if set(kills) <= {"scheduler"}:
        check(trained == EPOCHS * SAMPLES, f"{name} after {kills}: {trained} samples in workers.jsonl")
    check(0.9 * EPOCHS * SAMPLES <= trained <= EPOCHS * SAMPLES, f"{name} after {kills}: {trained} samples in workers.jsonl")
    options = json.load(open(folder + "/job.json"))["options"]
    check(options["max-epochs"] == EPOCHS and options["solver"] == "sgdm", f"{name}: options {options}")
    return sum(interval["cpu_ms"] for interval in measured)


def check_curve(folder):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    steps = [event.step for event in events.Scalars("loss/train")]
    check(steps == sorted(set(steps)) and len(steps) > 0, f"{folder}: steps of TensorBoard {steps}")


def main():
    draw = random.Random(SEED)
    print("seed", SEED)
    with tempfile.TemporaryDirectory() as root:
        for name in ("GRADPOOL_RUNTIME_DIR", "GRADPOOL_STATE_DIR", "XDG_CACHE_HOME"):
            os.environ[name] = f"{root}/{name.lower()}"
            os.makedirs(os.environ[name], 0o700)
        subprocess.run([GRADPOOL, "up", "--workers", "2", "--devices", "cpu", "--quiet"], check=True)
        try:
            cpu_ms = 0
            for i in range(TRAININGS):
                kills = train(root, f"run{i}", draw)
                cpu_ms += check_records(root, f"run{i}", kills)
                check_curve(f"{root}/run{i}")
            check(cpu_ms > 0, "processor time of the workers")
        finally:
            subprocess.run([GRADPOOL, "down", "--quiet"], check=False)
            time.sleep(0.2)
    finish()


main()
