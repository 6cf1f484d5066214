#!/usr/bin/env python3
"""asha_ray.py: write asha_decisions.txt, the decisions of Ray's AsyncHyperBandScheduler on 1,000 random tables.

Run it by hand with a Python that has Ray (pip install "ray[tune]"); the tests read the committed file. Each line describes one
table: ETA EPOCHS_MIN EPOCHS_MAX TRIALS SEED, and for each trial the epoch after which Ray stopped it, in base 36 and two digits;
00 if the trial was complete. test_asha.c computes the curves with the same generator."""
import os
import sys

TABLES = 1000


class Random:
    """SplitMix64 (Steele, Lea, Flood 2014)."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        word = self.state
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        return word ^ word >> 31

    def below(self, limit):
        return self.next() % limit

    def uniform(self):
        return (self.next() >> 11) * 2.0**-53


class Trial:
    def __init__(self, number):
        self.trial_id = number


def run(eta, epochs_min, epochs_max, trials, seed):
    from ray.tune.schedulers import AsyncHyperBandScheduler

    random = Random(seed)
    minimize = random.below(2) == 1
    rounded = random.below(2) == 1
    running_max = 1 + random.below(8)
    scheduler = AsyncHyperBandScheduler(time_attr="epoch", metric="value", mode="min" if minimize else "max", max_t=epochs_max,
                                        grace_period=epochs_min, reduction_factor=eta)
    quality, epoch, stopped, running = [], [], [], []
    while len(quality) < trials or running:
        if len(quality) < trials and len(running) < running_max:
            running.append(len(quality))
            quality.append(random.uniform())
            epoch.append(0)
            stopped.append(0)
            scheduler.on_trial_add(None, Trial(running[-1]))
            continue
        place = random.below(len(running))
        trial = running[place]
        epoch[trial] += 1
        value = quality[trial] * (epoch[trial] / (epoch[trial] + 2.0)) + 0.2 * random.uniform()
        if rounded:
            value = int(value * 64.0) / 64.0
        action = scheduler.on_trial_result(None, Trial(trial), {"epoch": epoch[trial], "value": value})
        if epoch[trial] == epochs_max:
            running.pop(place)
        elif action == "STOP":
            stopped[trial] = epoch[trial]
            running.pop(place)
    return stopped


def digits(number):
    symbols = "0123456789abcdefghijklmnopqrstuvwxyz"
    return symbols[number // 36] + symbols[number % 36]


def main():
    if sys.argv[1:]:
        print(__doc__)
        return 0
    random = Random(1)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "asha_decisions.txt"), "w", encoding="ascii") as file:
        for table in range(TABLES):
            eta = 2 + random.below(4)
            epochs_min = 1 + random.below(4)
            epochs_max = epochs_min + 1 + random.below(60)
            trials = 1 + random.below(40)
            stopped = run(eta, epochs_min, epochs_max, trials, table)
            file.write("%d %d %d %d %d %s\n" % (eta, epochs_min, epochs_max, trials, table, "".join(map(digits, stopped))))
    return 0


sys.exit(main())
