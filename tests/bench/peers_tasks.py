#!/usr/bin/env python3
"""The rows of bench_tasks for Python task pools, one after the other, with raw ZeroMQ as the reference.

    PYTHON peers_tasks.py [--program build/release/bench/bench_tasks] [--ours FILE.json] [--only PEER,...] [--json]

PYTHON is the interpreter whose pools are measured: pools that cannot be imported are listed and skipped; the payload row needs
numpy. The reference (`bench_tasks --raw`) runs before and after the peers in the same session. --ours adds gradpool's column
from `bench_tasks --json` in the same session. --json prints all measurements instead of the table.

Every pool has two worker processes without pinning. Each runs in a separate session with a time limit and with temporary home
and work directories. Remaining processes are killed by process id: this script is the subreaper of all descendants.
"""
import argparse
import ctypes
import importlib.util
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

WORKERS = 2
PAYLOAD_WORDS = 8 << 20  # words of 8 bytes
NAPS, NAP_S = 200, 0.010
PEER_LIMIT_S = 75
ROW_LIMIT_S = 20
ROWS = [("round_trip_p50", "one no-op, p50", "us"), ("round_trip_p99", "one no-op, p99", "us"),
        ("submit", "one future per task, no-op", "tasks/s"), ("parfor", "batched map, no-op", "tasks/s"),
        ("spmd", "empty call on both, p50", "us"), ("bulk", "64 MiB to both and back", "GB/s"),
        ("task_1ms", "1000 x 1 ms", "efficiency"), ("task_100us", "2000 x 100 us", "efficiency"),
        ("kill_over", "kill -9 amid 200 x 10 ms, beyond ideal", "ms"), ("kill_lost", "... lost", "tasks"),
        ("kill_twice", "... finished twice", "tasks")]


# ---- tasks: with local imports, because some pools send them as source ----

def increment(word):
    return word + 1


def burn(turns):
    for _ in range(turns):
        pass


def stamp(words):
    out = words.copy()
    out[::512] += 1
    return out


def nap(number, seconds, ledger):
    import os
    import time
    fd = os.open(ledger, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"begun %d %d\n" % (number, os.getpid()))
    time.sleep(seconds)
    os.write(fd, b"ended %d %d\n" % (number, os.getpid()))
    os.close(fd)
    return number


# ---- pools ----
# call: run one task and return the result. futures: one future per task; each returns its result or raises an exception, at
# most until `deadline` (time.monotonic()). mapped: the pool's batched map over a range. everywhere: run on both workers at
# once. submits, maps: number of tasks for a row of about 1 s.

class Executor:
    name, modules, submits, maps = "ProcessPoolExecutor", [], 10000, 400000

    def __init__(self):
        from concurrent.futures import ProcessPoolExecutor
        self.pool = ProcessPoolExecutor(WORKERS)

    def call(self, function, *arguments):
        return self.pool.submit(function, *arguments).result()

    def futures(self, function, arguments):
        futures = [self.pool.submit(function, *a) for a in arguments]
        return lambda deadline: [wait_for(f.result, deadline) for f in futures]

    def mapped(self, function, count):
        return sum(self.pool.map(function, range(count), chunksize=count // 16))

    def everywhere(self, function, *arguments):
        return [f.result() for f in [self.pool.submit(function, *arguments) for _ in range(WORKERS)]]

    def stop(self):
        self.pool.shutdown()


class Pool:
    name, modules, submits, maps = "multiprocessing.Pool", [], 20000, 1000000

    def __init__(self):
        import multiprocessing
        self.pool = multiprocessing.Pool(WORKERS)

    def call(self, function, *arguments):
        return self.pool.apply(function, arguments)

    def futures(self, function, arguments):
        futures = [self.pool.apply_async(function, a) for a in arguments]
        return lambda deadline: [wait_for(f.get, deadline) for f in futures]

    def mapped(self, function, count):
        return sum(self.pool.map(function, range(count), chunksize=count // 16))

    def everywhere(self, function, *arguments):
        return [f.get() for f in [self.pool.apply_async(function, arguments) for _ in range(WORKERS)]]

    def stop(self):
        self.pool.close()
        self.pool.join()


class Joblib:
    name, modules, submits, maps = "joblib (loky)", ["joblib"], 3000, 100000

    def __init__(self):
        import joblib
        self.joblib = joblib
        self.single = joblib.Parallel(n_jobs=WORKERS, batch_size=1, pre_dispatch="all").__enter__()
        self.auto = joblib.Parallel(n_jobs=WORKERS)

    def run(self, parallel, function, arguments):
        return parallel(self.joblib.delayed(function)(*a) for a in arguments)

    def call(self, function, *arguments):
        return self.run(self.single, function, [arguments])[0]

    def futures(self, function, arguments):
        """Return all results or raise one exception: this pool has no futures."""
        import threading
        results = []

        def work():
            try:
                results.extend(self.run(self.single, function, arguments))
            except Exception as error:  # the exception is the result
                results.extend([error] * len(arguments))
        thread = threading.Thread(target=work, daemon=True)
        thread.start()

        def collect(deadline):
            thread.join(max(0, deadline - time.monotonic()))
            return results or [TimeoutError()] * len(arguments)
        return collect

    def mapped(self, function, count):
        return sum(self.run(self.auto, function, ((i,) for i in range(count))))

    def everywhere(self, function, *arguments):
        return self.run(self.single, function, [arguments] * WORKERS)

    def stop(self):
        self.single.__exit__(None, None, None)


class Dask:
    name, modules, submits, maps = "Dask distributed", ["distributed"], 800, 800

    def __init__(self):
        from distributed import Client, LocalCluster
        self.cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None,
                                    silence_logs=50)
        self.client = Client(self.cluster)
        self.client.wait_for_workers(WORKERS)

    def call(self, function, *arguments):
        return self.client.submit(function, *arguments, pure=False).result()

    def futures(self, function, arguments):
        futures = [self.client.submit(function, *a, pure=False) for a in arguments]
        return lambda deadline: [wait_for(f.result, deadline) for f in futures]

    def mapped(self, function, count):
        return sum(self.client.gather(self.client.map(function, range(count), pure=False)))

    def everywhere(self, function, *arguments):
        if not arguments:
            return self.client.run(function)
        shared = [self.client.scatter(a, broadcast=True, hash=False) for a in arguments]
        places = list(self.client.scheduler_info()["workers"])
        return self.client.gather([self.client.submit(function, *shared, workers=[p], pure=False) for p in places])

    def stop(self):
        self.client.close()
        self.cluster.close()


class Ray:
    name, modules, submits, maps = "Ray", ["ray"], 1500, 0

    def __init__(self):
        import logging
        import ray
        self.ray = ray
        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
                 object_store_memory=1 << 30, _temp_dir=os.path.join(os.environ["TMPDIR"], "ray"))
        self.remote = {}

        @ray.remote(num_cpus=0)
        class Place:
            def run(self, function, *arguments):
                return function(*arguments)
        self.places = [Place.remote() for _ in range(WORKERS)]

    def task(self, function):
        if function not in self.remote:
            self.remote[function] = self.ray.remote(num_cpus=1)(function)
        return self.remote[function]

    def call(self, function, *arguments):
        return self.ray.get(self.task(function).remote(*arguments))

    def futures(self, function, arguments):
        task = self.task(function)
        futures = [task.remote(*a) for a in arguments]
        return lambda deadline: [wait_for(lambda timeout: self.ray.get(f, timeout=timeout), deadline)
                                 for f in futures]

    def everywhere(self, function, *arguments):
        shared = [self.ray.put(a) for a in arguments]
        return self.ray.get([p.run.remote(function, *shared) for p in self.places])

    def stop(self):
        self.ray.shutdown()


class IPyParallel:
    name, modules, submits, maps = "ipyparallel", ["ipyparallel"], 500, 100000

    def __init__(self):
        import ipyparallel
        self.cluster = ipyparallel.Cluster(n=WORKERS, log_level=50)
        self.client = self.cluster.start_and_connect_sync(activate=False)
        self.any, self.both = self.client.load_balanced_view(), self.client[:]

    def call(self, function, *arguments):
        return self.any.apply_sync(function, *arguments)

    def futures(self, function, arguments):
        futures = [self.any.apply_async(function, *a) for a in arguments]
        return lambda deadline: [wait_for(f.get, deadline) for f in futures]

    def mapped(self, function, count):
        return sum(self.any.map_sync(function, range(count), chunksize=count // 16))

    def everywhere(self, function, *arguments):
        return self.both.apply_sync(function, *arguments)

    def stop(self):
        self.cluster.stop_cluster_sync()


def pyzmq_worker(endpoint, index):
    """Call a function by name; return results and payloads unchanged."""
    import msgpack
    import zmq
    dealer = zmq.Context().socket(zmq.DEALER)
    dealer.setsockopt(zmq.IDENTITY, b"%d" % index)
    dealer.connect(endpoint)
    dealer.send(b"")
    functions = {"increment": increment, "burn": burn, "nothing": nothing}
    while True:
        frames = dealer.recv_multipart(copy=False)
        name, arguments = msgpack.unpackb(frames[0].buffer)
        if name == "stamp":
            import numpy
            dealer.send(stamp(numpy.frombuffer(frames[1].buffer, dtype=numpy.uint64)), copy=False)
        elif name == "map":
            dealer.send(msgpack.packb([i + 1 for i in range(*arguments)]))
        else:
            dealer.send(msgpack.packb(functions[name](*arguments)))


class PyZmq:
    """A hand-written pool without futures and recovery; a window of 256 messages per worker, 2 for CPU work."""
    name, modules, submits, maps = "pyzmq by hand", ["zmq", "msgpack"], 50000, 2000000

    def __init__(self):
        import multiprocessing
        import msgpack
        import zmq
        endpoint = "ipc://%s/zmq" % os.environ["TMPDIR"]
        self.pack, self.unpack = msgpack.packb, msgpack.unpackb
        self.processes = [multiprocessing.Process(target=pyzmq_worker, args=(endpoint, i), daemon=True)
                          for i in range(WORKERS)]
        for process in self.processes:
            process.start()
        self.router = zmq.Context().socket(zmq.ROUTER)
        self.router.bind(endpoint)
        for _ in self.processes:
            self.router.recv_multipart()

    def send(self, worker, name, arguments, *payload):
        self.router.send_multipart([b"%d" % worker, self.pack((name, arguments)), *payload], copy=not payload)

    def call(self, function, *arguments):
        self.send(0, function.__name__, arguments)
        return self.unpack(self.router.recv_multipart()[1])

    def window(self, messages, window):
        """Send all messages [(name, arguments)] to both workers; return the answers, unordered."""
        waiting, results, left = [0] * WORKERS, [], iter(messages)
        sent = True
        while True:
            while sent:
                worker = waiting.index(min(waiting))
                message = next(left, None) if waiting[worker] < window else None
                if message is None:
                    break
                self.send(worker, *message)
                waiting[worker] += 1
            if not any(waiting):
                return results
            identity, answer = self.router.recv_multipart()
            waiting[int(identity)] -= 1
            results.append(self.unpack(answer))

    def futures(self, function, arguments):
        if function is nap:
            raise NotImplementedError("no recovery to measure")
        window = 2 if function is burn else 256
        return lambda deadline: self.window([(function.__name__, a) for a in arguments], window)

    def mapped(self, function, count):
        return sum(sum(part) for part in self.window((("map", (i, i + 100)) for i in range(0, count, 100)), 256))

    def everywhere(self, function, *arguments):
        for worker in range(WORKERS):
            self.send(worker, function.__name__, (), *arguments)
        frames = [self.router.recv_multipart(copy=False)[1] for _ in range(WORKERS)]
        if not arguments:
            return [self.unpack(f.buffer) for f in frames]
        import numpy
        return [numpy.frombuffer(f.buffer, dtype=numpy.uint64) for f in frames]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()


PEERS = {"executor": Executor, "pool": Pool, "joblib": Joblib, "dask": Dask, "ray": Ray, "ipyparallel": IPyParallel,
         "pyzmq": PyZmq}


def nothing():
    return None


def wait_for(get, deadline):
    """Return the result, or the exception that ended the wait."""
    try:
        return get(timeout=max(0.01, deadline - time.monotonic()))
    except Exception as error:  # pool-specific exceptions
        return error


# ---- measurements in the peer's process ----

def turns_of(seconds):
    """Return the turns of burn() for that CPU time; median, including timer ticks."""
    turns, times = 1000000, []
    for _ in range(9):
        began = time.thread_time()
        burn(turns)
        times.append((time.thread_time() - began) / turns)
    return round(seconds / statistics.median(times))


def far():
    return time.monotonic() + ROW_LIMIT_S


def median_of(measure, rounds=3, budget_s=5):
    """Return the median over the rounds; fewer rounds if slow."""
    values, end = [], time.monotonic() + budget_s
    while len(values) < rounds and (not values or time.monotonic() < end):
        values.append(measure())
    return statistics.median(values)


def percentiles(action):
    """Return p50 and p99 in microseconds over the calls within 1 s, at most 2000."""
    for _ in range(10):
        action()
    times, end = [], time.perf_counter() + 1
    while len(times) < 20 or (len(times) < 2000 and time.perf_counter() < end):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    times.sort()
    return times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6


def expect(right, what):
    if not right:
        raise RuntimeError("wrong result: " + what)


def seconds_of(peer, function, arguments, check=None):
    began = time.perf_counter()
    results = peer.futures(function, arguments)(far())
    seconds = time.perf_counter() - began
    for result in results:
        if isinstance(result, Exception):
            raise result
    expect(check is None or sum(results) == check, "results")
    return seconds


def measure_round_trip(peer):
    return dict(zip(("round_trip_p50", "round_trip_p99"), percentiles(lambda: peer.call(increment, 1))))


def measure_submit(peer):
    n = peer.submits
    arguments = [(i,) for i in range(n)]
    return {"submit": median_of(lambda: n / seconds_of(peer, increment, arguments, n * (n + 1) // 2))}


def measure_parfor(peer):
    n = peer.maps
    if n == 0:
        raise NotImplementedError("no batched map")

    def once():
        began = time.perf_counter()
        expect(peer.mapped(increment, n) == n * (n + 1) // 2, "results of the map")
        return n / (time.perf_counter() - began)
    return {"parfor": median_of(once)}


def measure_spmd(peer):
    return {"spmd": percentiles(lambda: peer.everywhere(nothing))[0]}


def measure_bulk(peer):
    import numpy
    words = numpy.ones(PAYLOAD_WORDS, dtype=numpy.uint64)

    def once():
        began = time.perf_counter()
        for back in peer.everywhere(stamp, words):
            expect(int(back[::512].sum()) == PAYLOAD_WORDS // 512 * 2, "stamps of a payload")
        return 2 * WORKERS * words.nbytes / (time.perf_counter() - began) * 1e-9
    once()
    return {"bulk": median_of(once)}


def efficiency(peer, count, task_s):
    turns = turns_of(task_s)
    ideal = count * task_s / WORKERS
    return median_of(lambda: ideal / seconds_of(peer, burn, [(turns,)] * count))


def measure_1ms(peer):
    return {"task_1ms": efficiency(peer, 1000, 1e-3)}


def measure_100us(peer):
    return {"task_100us": efficiency(peer, 2000, 1e-4)}


def measure_kill(peer):
    """Kill a worker that sleeps in a task after a quarter of the tasks."""
    ledger = os.path.join(os.environ["TMPDIR"], "ledger")
    open(ledger, "w").close()

    def lines(word):
        with open(ledger) as file:
            return [tuple(map(int, line.split()[1:])) for line in file if line.startswith(word)]
    began = time.perf_counter()
    collect = peer.futures(nap, [(i, NAP_S, ledger) for i in range(NAPS)])
    while len(lines("ended")) < NAPS // 4:
        time.sleep(0.001)
    time.sleep(NAP_S / 2)
    ended = {number for number, _ in lines("ended")}
    os.kill(next(pid for number, pid in reversed(lines("begun")) if number not in ended), signal.SIGKILL)
    results = collect(time.monotonic() + 8)
    seconds = time.perf_counter() - began
    numbers = [number for number, _ in lines("ended")]
    rows = {"kill_lost": sum(isinstance(r, BaseException) for r in results),
            "kill_twice": len(numbers) - len(set(numbers))}
    if rows["kill_lost"] == 0:
        rows["kill_over"] = seconds * 1e3 - NAPS * NAP_S * 1e3 / WORKERS
    return rows


def run_peer(key):
    """Print one JSON object per group of rows, so that a timeout keeps earlier measurements."""
    def limit(_signal, _frame):
        raise TimeoutError("timeout after %d s" % ROW_LIMIT_S)
    signal.signal(signal.SIGALRM, limit)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.alarm(ROW_LIMIT_S)
    peer = PEERS[key]()
    peer.everywhere(nothing)
    for measure in (measure_round_trip, measure_submit, measure_parfor, measure_spmd, measure_bulk, measure_1ms,
                    measure_100us, measure_kill):
        signal.alarm(ROW_LIMIT_S)
        try:
            rows = measure(peer)
        except NotImplementedError:
            rows = {}
        except Exception as error:  # no value for this row; continue with the next
            rows = {}
            print("%s: %s: %s: %s" % (key, measure.__name__[8:], type(error).__name__, str(error)[:200]),
                  file=sys.stderr, flush=True)
        signal.alarm(0)
        print(json.dumps(rows), file=out, flush=True)
    signal.alarm(5)
    try:
        peer.stop()
    except Exception as error:
        print("%s: stop: %s" % (key, type(error).__name__), file=sys.stderr)
    out.flush()
    os._exit(0)  # some pools wait forever for killed workers


# ---- one peer after the other ----

def become_reaper():
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    """Return the descendants of this process, deepest last."""
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry) as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry))
    found = [os.getpid()]
    for pid in found:
        found.extend(children.get(pid, []))
    return found[1:]


def end_descendants():
    """Kill all descendants; return their number."""
    left = 0
    for _ in range(50):
        alive = [pid for pid in descendants() if not reaped(pid)]
        if not alive:
            break
        left = max(left, len(alive))
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    return left


def reaped(pid):
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False  # not a direct child: it is reparented to this process when its parent exits


def remove_shared(pid):
    """Remove the files in /dev/shm named after the peer's first process, which remain if a worker was killed."""
    for name in os.listdir("/dev/shm"):
        if re.search(r"(loky|joblib|pymp|psm)\D*[-_]%d[-_]" % pid, name):
            try:
                os.unlink(os.path.join("/dev/shm", name))
            except OSError:
                shutil.rmtree(os.path.join("/dev/shm", name), ignore_errors=True)


def measure_peer(key):
    """Return the rows of one peer; print our own messages in its standard error."""
    place = tempfile.mkdtemp(prefix="gpp-", dir="/tmp")
    environment = dict(os.environ, TMPDIR=place, HOME=place, IPYTHONDIR=place, RAY_TMPDIR=place,
                       JOBLIB_TEMP_FOLDER=place, RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0",
                       RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", PYTHONWARNINGS="ignore")
    rows = {}
    with open(os.path.join(place, "stderr"), "w+") as errors:
        child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--run", key], env=environment,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                                 cwd=place, start_new_session=True)
        try:
            out, _ = child.communicate(timeout=PEER_LIMIT_S)
        except subprocess.TimeoutExpired:
            print("%s: timeout after %d s" % (key, PEER_LIMIT_S), file=sys.stderr)
            child.kill()
            end_descendants()
            out, _ = child.communicate()
        end_descendants()
        remove_shared(child.pid)
        for line in out.splitlines():
            if line.startswith("{"):
                rows.update(json.loads(line))
        errors.seek(0)
        text = errors.read()
        sys.stderr.write("".join(line + "\n" for line in text.splitlines() if line.startswith(key + ": ")))
        if not rows:
            sys.stderr.write("%s measured nothing; its last words:\n%s\n" % (key, text[-1500:]))
    shutil.rmtree(place, ignore_errors=True)
    return rows


def bench_rows(text, side):
    """Return the rounds of the two-core layout in the output of `bench_tasks --json`."""
    return {row["row"]: row[side] for row in json.loads(text) if row["layout"] == "two cores" and row[side]}


def run_reference(program):
    return bench_rows(subprocess.run([program, "--raw", "--json", "--rounds", "2"], check=True, text=True,
                                     stdout=subprocess.PIPE, timeout=120).stdout, "raw")


def number(value):
    """Format a number with three digits."""
    if value >= 1e6:
        return "%.3g M" % (value * 1e-6)
    if value >= 1e4:
        return "%.3g k" % (value * 1e-3)
    return "%.0f" % value if value >= 100 or value == int(value) else "%.3g" % value


def short(ratio):
    return "%.0f" % ratio if ratio >= 10 else "%.2g" % ratio if ratio >= 1e-3 else "%.0e" % ratio


def print_table(reference, ours, peers):
    names = ["raw ZeroMQ"] + (["**gradpool**"] if ours else []) + [PEERS[key].name for key in peers]
    print("| | unit | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 2))
    for row, title, unit in ROWS:
        base = reference.get(row)
        cells = [number(base) if base is not None else "-"]
        for values in ([ours] if ours else []) + list(peers.values()):
            value = values.get(row)
            ratio = " (x%s)" % short(value / base) if value is not None and base else ""
            cells.append("-" if value is None else number(value) + ratio)
        print("| %s | %s | %s |" % (title, unit, " | ".join(cells)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/bench/bench_tasks", help="program for the reference [build/release/bench/bench_tasks]")
    parser.add_argument("--ours", help="output of bench_tasks --json, for gradpool's column")
    parser.add_argument("--only", help="comma-separated: " + ", ".join(PEERS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--run", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_peer(options.run)
    keys = options.only.split(",") if options.only else list(PEERS)
    unknown = [key for key in keys if key not in PEERS]
    if unknown:
        sys.exit("unknown peer %s; available: %s" % (", ".join(unknown), ", ".join(PEERS)))
    if not os.path.exists(options.program):
        sys.exit("no %s; build the release preset first" % options.program)
    become_reaper()
    before, peers = run_reference(options.program), {}
    for key in keys:
        missing = [m for m in PEERS[key].modules if importlib.util.find_spec(m) is None]
        if missing:
            print("%s is skipped: %s has no module %s" % (PEERS[key].name, sys.executable, ", ".join(missing)),
                  file=sys.stderr)
            continue
        peers[key] = measure_peer(key)
    after = run_reference(options.program)
    reference = {row: statistics.median(before[row] + after.get(row, [])) for row in before}
    ours = None
    if options.ours:
        with open(options.ours) as file:
            ours = {row: statistics.median(v) for row, v in bench_rows(file.read(), "gradpool").items()}
    if options.json:
        print(json.dumps({"raw": reference, "gradpool": ours, "peers": peers}, indent=1))
    else:
        print_table(reference, ours, peers)


if __name__ == "__main__":
    main()
