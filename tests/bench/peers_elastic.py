#!/usr/bin/env python3
"""Time until an added worker computes, for Dask and Ray, as bench_elastic measures it for gradpool.

    PYTHON peers_elastic.py dask|ray [ROUNDS]

One worker process runs 400 tasks of 10 ms; after ten of them a second worker is added. Prints the time from that request to the
start of the first task on the second worker, in ms, a line for each round. Dask adds a worker process to its local cluster, Ray a
node to a cluster on this host, because its nodes have a fixed number of processors.
"""
import os
import sys
import time

TASKS, WARM_UP = 400, 10


def nap(number):
    import os
    import time
    start = time.time()
    time.sleep(0.010)
    return os.getpid(), start


def first_on_second(results, asked):
    """Milliseconds until a process other than the first one starts a task."""
    first = min(results, key=lambda result: result[1])[0]
    return 1000 * (min((start for pid, start in results if pid != first), default=float("nan")) - asked)


def dask_round():
    from distributed import Client, LocalCluster
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster, Client(cluster) as client:
        futures = [client.submit(nap, number, pure=False) for number in range(TASKS)]
        client.gather(futures[:WARM_UP])
        asked = time.time()
        cluster.scale(2)
        return first_on_second(client.gather(futures), asked)


def ray_round():
    import ray
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    remote = ray.remote(nap)
    futures = [remote.remote(number) for number in range(TASKS)]
    ray.get(futures[:WARM_UP])
    asked = time.time()
    cluster.add_node(num_cpus=1)
    took = first_on_second(ray.get(futures), asked)
    ray.shutdown()
    cluster.shutdown()
    return took


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("dask", "ray"):
        sys.exit(__doc__)
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    for _ in range(int(sys.argv[2]) if len(sys.argv) == 3 else 10):
        print("%.1f" % (dask_round() if sys.argv[1] == "dask" else ray_round()), flush=True)
