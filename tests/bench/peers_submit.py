#!/usr/bin/env python3
"""peers_submit.py: start a Python program as a job of Slurm with submitit or dask-jobqueue, for `run_submit programs`.

    peers_submit.py job PROGRAM FILE                          run PROGRAM, then create FILE
    peers_submit.py submitit|dask-jobqueue PROGRAM FILE       the same in a job; returns when the job has ended

PROGRAM is `empty`, or `pytorch`: one step of LeNet on 64 images. The files of the engines are in the working directory.

Needs a Python with torch, submitit and dask-jobqueue."""
import os
import sys

CPUS = 2  # of each job


def job(program, path):
    if program == "pytorch":
        import torch
        from torch import nn

        torch.set_num_threads(1)
        net = nn.Sequential(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
                            nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        nn.functional.cross_entropy(net(torch.rand(64, 1, 28, 28)), torch.randint(10, (64,))).backward()
        optimizer.step()
    open(path, "w").close()


def by_submitit(program, path):
    import submitit

    executor = submitit.AutoExecutor(folder=os.path.abspath("submitit"), cluster="slurm")
    executor.update_parameters(cpus_per_task=CPUS, timeout_min=10)
    executor.submit(job, program, path).result()


def by_dask_jobqueue(program, path):
    from dask_jobqueue import SLURMCluster
    from distributed import Client

    # The limit of the worker's memory is not requested from Slurm: the nodes of the test cluster have 1 GB.
    with SLURMCluster(cores=1, processes=1, job_cpu=CPUS, memory="8GB", job_directives_skip=["--mem"], interface="lo",
                      walltime="00:10:00", log_directory="dask", local_directory="dask",
                      scheduler_options={"dashboard_address": None}) as cluster:
        cluster.scale(jobs=1)
        with Client(cluster) as client:
            client.submit(job, program, path).result()


if __name__ == "__main__":
    {"job": job, "submitit": by_submitit, "dask-jobqueue": by_dask_jobqueue}[sys.argv[1]](*sys.argv[2:])
