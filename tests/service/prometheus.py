"""Compare `gradpool metrics` with what Prometheus reads: promtool, two parsers, and a real server.

  prometheus.py GRADPOOL [--rate]

GP_PROMETHEUS is the folder of the programs prometheus and promtool. --rate also compares the rate over ten seconds with the
training's own speed, within 10 %. This needs an idle machine, because heartbeats are late on a busy one.
"""

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checks import check, finish

try:
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as open_parser
except ImportError as error:
    print(f"skipped: no prometheus_client: {error}")
    sys.exit(77)

GRADPOOL, PROMETHEUS = sys.argv[1], os.environ.get("GP_PROMETHEUS", "")
if not os.access(PROMETHEUS + "/promtool", os.X_OK):
    print("skipped: no promtool in $GP_PROMETHEUS")
    sys.exit(77)
SOURCE = os.environ["GP_SOURCE_DIR"]
SCRAPE_S = 10  # window of the rate
RATE = "--rate" in sys.argv


def run(*words):
    return subprocess.run([GRADPOOL, *words], check=True, capture_output=True, text=True).stdout


def samples(families):
    """Return {(name, labels): value} of the families of a parser."""
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def check_formats():
    text, open_text = run("metrics"), run("metrics", "--openmetrics")
    tool = subprocess.run([PROMETHEUS + "/promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    check(tool.returncode == 0 and tool.stdout + tool.stderr == "", f"promtool: {tool.stdout}{tool.stderr}")
    old, new = samples(parser.text_string_to_metric_families(text)), samples(open_parser.text_string_to_metric_families(open_text))
    check(set(old) == set(new) and len(old) > 40, f"both formats have the same samples: {set(old) ^ set(new)}")
    return set(f.name for f in open_parser.text_string_to_metric_families(open_text))


def check_manual(found):
    """prometheus.def, the output and the table of the manual have the same families."""
    rows = re.findall(r'GP_FAMILY\((\w+), (\w+), "([^"]*)", "([^"]*)"', open(SOURCE + "/client/runs/prometheus.def").read())
    page = open(SOURCE + "/docs/runs.md").read()
    for name, kind, labels, text in rows:
        row = f"| `{name}` | {kind.lower()} | {labels} | {text.rstrip('.')} |"
        check(row in page, f"docs/runs.md has no row {row}")
    names = {re.sub("_total$", "", name) if kind == "COUNTER" else name for name, kind, _, _ in rows}
    check({n.removesuffix("_total") for n in names} == {f.removesuffix("_total") for f in found}, f"families {names ^ found}")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = run("metrics").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def query(port, text):
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": text})
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.loads(reply.read())["data"]["result"]


def await_value(port, text, wanted):
    """Return the value of a query as soon as it is as wanted; a failure after 30 s."""
    end, value = time.monotonic() + 30, None
    while time.monotonic() < end:
        try:
            points = query(port, text)
            value = float(points[0]["value"][1]) if points else None
        except (urllib.error.URLError, ConnectionError):
            value = None
        if value is not None and wanted(value):
            return value
        time.sleep(0.25)
    check(False, f"{text} is {value}")
    return value


def start_training(root):
    return subprocess.Popen([GRADPOOL, "train", "--network", "lenet", "--data", "digits:2000", "--epochs", "100000",
                             "--validation-data", "none", "--json", "--quiet"],
                            cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def recorded_speeds(root):
    """Return the images/s in metrics.jsonl over windows of SCRAPE_S. Their ends differ, because a sample of Prometheus is up to
    1.5 s old: one interval of the scrapes and one of the heartbeats."""
    folder = root + "/gradpool-runs/latest"
    steps = [json.loads(line) for line in open(folder + "/metrics.jsonl") if '"time"' in line and line.endswith("\n")]
    facts = json.load(open(folder + "/facts.json"))
    per_step = facts["samples"] / facts["steps_per_epoch"]
    ends = [steps[-1]["seconds"] - shift / 4 for shift in range(7)]
    return [sum(end - SCRAPE_S < step["seconds"] <= end for step in steps) * per_step / SCRAPE_S for end in ends]


def check_server(root):
    """A real Prometheus scrapes a training. It counts as many samples as metrics.jsonl."""
    target = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=target.serve_forever, daemon=True).start()
    probe = http.server.HTTPServer(("127.0.0.1", 0), Handler)  # to find a free port
    port = probe.server_port
    probe.server_close()
    with open(root + "/prometheus.yml", "w") as config:
        config.write("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: gradpool\n"
                     f"  static_configs: [{{targets: ['127.0.0.1:{target.server_port}']}}]\n")
    server = subprocess.Popen([PROMETHEUS + "/prometheus", "--config.file=" + root + "/prometheus.yml",
                               "--storage.tsdb.path=" + root + "/data", f"--web.listen-address=127.0.0.1:{port}"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        training = start_training(root)
        await_value(port, f"max(count_over_time(gradpool_worker_steps_total[{SCRAPE_S}s]))", lambda n: n >= (SCRAPE_S - 1 if RATE else 3))
        if RATE:
            # rate() extrapolates a counter to the ends of the window, but not below zero: wait until it is far from zero.
            total = f"gradpool_worker_samples_total[{SCRAPE_S}s]"
            await_value(port, f"min(min_over_time({total}) / max_over_time({total}))", lambda n: n > 0.5)
            rate = await_value(port, f"sum(rate({total}))", lambda n: n > 0)
            speeds = recorded_speeds(root)
            check(any(abs(rate / speed - 1) < 0.1 for speed in speeds), f"rate {rate}, recorded images/s: {speeds}")
        training.send_signal(signal.SIGINT)
        samples = json.loads(training.communicate(timeout=30)[0])["samples"]
        await_value(port, "sum(max_over_time(gradpool_worker_samples_total[2m]))", lambda n: n == samples)
    finally:
        server.kill()
        server.wait()
        target.shutdown()


def worker_counters():
    """Return the counters of the workers; {}: no scheduler replies."""
    try:
        found = samples(parser.text_string_to_metric_families(run("metrics")))
    except subprocess.CalledProcessError:
        return {}
    return {k: v for k, v in found.items() if k[0].startswith("gradpool_worker_") and k[0].endswith("_total")}


def status():
    return json.loads(run("status", "--json"))


def await_counters(before, done):
    """Read counters until they are as wanted, and check that none falls. Return them; the last ones after 30 s."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        after = worker_counters()
        fallen = {k: (v, after[k]) for k, v in before.items() if after.get(k, v) < v}
        check(not fallen, f"counters fell: {fallen}")
        before = {**before, **after}
        if fallen or (after and done(after)):
            return before
    check(False, f"counters of the workers: {before}")
    return before


def check_failover(root):
    """No counter of a worker falls when the scheduler is killed during a training."""
    worker, other = (("worker", "1"),), (("worker", "2"),)
    old = status()["workers"][1]["pid"]
    os.kill(old, signal.SIGKILL)
    end = time.monotonic() + 30
    while status()["workers"][1]["pid"] in (0, old) and time.monotonic() < end:  # the counters of the old process
        time.sleep(0.02)
    await_counters({}, lambda c: c.get(("gradpool_worker_failures_total", other)) == 1 and ("gradpool_worker_cpu_seconds_total", other) in c)
    training = start_training(root)
    before = await_counters({}, lambda c: c[("gradpool_worker_steps_total", worker)] > 0 and c[("gradpool_worker_held_seconds_total", worker)] > 0)
    pid = status()["scheduler"]["pid"]
    os.kill(pid, signal.SIGKILL)
    await_counters(before, lambda c: all(c.get(k, -1) > v for k, v in before.items() if "steps" in k[0] or "held" in k[0])
                   and c.get(("gradpool_worker_failures_total", other)) == 1)
    check(len(before) > 20 and status()["scheduler"]["pid"] != pid, "another scheduler replies")
    training.send_signal(signal.SIGINT)
    training.communicate(timeout=30)


def main():
    with tempfile.TemporaryDirectory() as root:
        for name in ("GRADPOOL_RUNTIME_DIR", "GRADPOOL_STATE_DIR", "XDG_CACHE_HOME"):
            os.environ[name] = f"{root}/{name.lower()}"
            os.makedirs(os.environ[name], 0o700)
        run("up", "--workers", "2", "--devices", "cpu", "--quiet")
        try:
            await_counters({}, lambda c: sum(name == "gradpool_worker_cpu_seconds_total" for name, _ in c) == 2)
            check_manual(check_formats())
            check_server(root)
            check_failover(root)
        finally:
            subprocess.run([GRADPOOL, "down", "--quiet"], check=False)
    finish()


main()
