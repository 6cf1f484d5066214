#!/usr/bin/env python3
"""tests/gpu/compare.py A.jsonl B.jsonl RULE: compare the losses of two trainings step by step.

RULE: "equal" (bitwise identical), or FIRST:TOLERANCE:END: largest relative difference TOLERANCE in the first FIRST steps, and
END for the mean of the last tenth."""
import json, sys


def losses(path):
    rows = [json.loads(line) for line in open(path)]
    return {row["step"]: row["loss"] for row in rows if "loss" in row and "validation_loss" not in row}


a, b, rule = losses(sys.argv[1]), losses(sys.argv[2]), sys.argv[3]
steps = sorted(set(a) & set(b))
if not steps:
    sys.exit("the files have no step in common")
if rule == "equal":
    off = [s for s in steps if a[s] != b[s]]
    if off or set(a) ^ set(b):
        sys.exit(f"{len(off)} of {len(steps)} steps differ, the first is {off[:1]}; only in one: {len(set(a) ^ set(b))}")
    print(f"{len(steps)} steps, all losses bitwise identical")
    sys.exit(0)
first, tolerance, end = int(rule.split(":")[0]), float(rule.split(":")[1]), float(rule.split(":")[2])
worst = max(abs(a[s] - b[s]) / max(abs(a[s]), 1e-3) for s in steps[:first])
tail = steps[-max(1, len(steps) // 10):]
means = [sum(x[s] for s in tail) / len(tail) for x in (a, b)]
apart = abs(means[0] - means[1]) / max(abs(means[0]), 1e-2)
print(f"{len(steps)} steps: first {first} within {worst:.2e}; means of the last {len(tail)}: {means[0]:.5f}, {means[1]:.5f}")
if not worst <= tolerance or not apart <= end:
    sys.exit(f"allowed {tolerance:g} and {end:g}")
