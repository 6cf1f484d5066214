#!/usr/bin/env python3
"""tests/gpu/ratios.py FILE: compare measured speeds with PyTorch's, with what they must reach, and with the goals.

FILE: lines "NAME PROGRAM NUMBER" as written by tests/gpu/check: a speed (images per second) or a time (milliseconds). Prints
a Markdown table, which marks missing measurements. Exit code 1: no measurement. tests/gpu/predict.py predicts the same table."""
import collections
import sys

# kind: "times": at least this ratio to another program; "least", "most": a bound on the value. must: None: only a goal.
Rule = collections.namedtuple("Rule", "kind against must goal")

SPEED, TIME = "images/s", "ms"
ASKED = [
    ("resnet50-train-bf16", "ResNet-50, training, batch 256, bf16", SPEED,
     [Rule("times", "eager", 1.2, 1.4), Rule("times", "compile", 1.0, 1.2), Rule("times", "by-rule", None, 1.0),
      Rule("least", "80 % of the byte model's 10,500", None, 8400)]),
    ("resnet50-infer-bf16", "ResNet-50, prediction, batch 256, bf16", SPEED,
     [Rule("times", "eager", None, 2.5), Rule("times", "compile", None, 1.4)]),
    ("alexnet-train-bf16", "AlexNet, training, batch 256, bf16", SPEED,
     [Rule("times", "eager", 1.0, 1.2), Rule("times", "compile", None, 1.2)]),
    ("alexnet-copied-bf16", "AlexNet, training, samples copied in each step, batch 256, bf16", SPEED,
     [Rule("times", "eager", None, 1.2)]),
    ("lenet-train-f32", "LeNet, training, batch 256, f32", SPEED,
     [Rule("times", "eager", 4, 10), Rule("times", "graph", 1.0, 1.2)]),
    ("lenet-train-bf16", "LeNet, training, batch 256, bf16", SPEED,
     [Rule("times", "eager", None, 10), Rule("times", "graph", None, 1.2)]),
    ("deeplabv3plus-train-bf16", "DeepLab v3+, training, batch 16, bf16 (PyTorch: v3)", SPEED,
     [Rule("times", "eager", None, 1.3)]),
    ("epoch", "LeNet, one epoch, 60,000 images, 28 x 28", TIME, [Rule("most", "", None, 20)]),
    ("start", "training with one step on a running pool, shell to shell", TIME, [Rule("most", "", None, 50)]),
    ("context", "first step: open the GPU", TIME, []),
    ("plans", "first step: plans", TIME, []),
    ("nccl", "first step: NCCL joins two ranks", TIME, []),
]


def reached(rule, value, number):
    """Return whether a value (a ratio for "times") is as required. None: not required or not measured."""
    if value is None or number is None:
        return None
    return value < number if rule.kind == "most" else value >= number


def required(rule, unit, number):
    if number is None:
        return ""
    return {"times": f">= {number:g} x", "least": f">= {number:,g} {unit}", "most": f"< {number:g} {unit}"}[rule.kind]


def answer(rule, value, number):
    if number is None:
        return ""
    return {None: "not measured", True: "yes", False: "no"}[reached(rule, value, number)]


def print_row(measured, what, text, unit, rule):
    ours = measured.get((what, "gradpool"))
    mine = "not measured" if ours is None else f"{ours:,.1f} {unit}"
    against, shown, value = rule.against, "", ours
    if rule.kind == "times":
        other = measured.get((what, rule.against))
        against = ("by rule: " if rule.against == "by-rule" else f"PyTorch {rule.against}: ") + ("not measured" if other is None else f"{other:,.1f} {unit}")
        value = None if ours is None or not other else ours / other
    if value is not None and rule.kind != "most":
        shown = f"{value if rule.kind == 'times' else value / rule.goal:.2f} x"
    print(f"| {text} | {mine} | {against} | {shown} | {required(rule, unit, rule.must)} | {answer(rule, value, rule.must)} | "
          f"{required(rule, unit, rule.goal)} | {answer(rule, value, rule.goal)} |")


def main():
    measured = {}
    for line in open(sys.argv[1]):
        what, who, number = line.split()
        measured[what, who] = float(number)
    if not any(who == "gradpool" for _, who in measured):
        sys.exit("no measurement of gradpool in the file")
    print("| measurement | gradpool | other | ratio | must | reached | goal | reached |\n|---|---|---|---|---|---|---|---|")
    for what, text, unit, rules in ASKED:
        for rule in rules:
            print_row(measured, what, text, unit, rule)
        if not rules:
            ours = measured.get((what, "gradpool"))
            print(f"| {text} | {'not measured' if ours is None else f'{ours:,.1f} {unit}'} | | | | | | |")


if __name__ == "__main__":
    main()
