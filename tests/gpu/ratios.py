#!/usr/bin/env python3
"""tests/gpu/ratios.py FILE: compare measured speeds with PyTorch's and with the goals.

FILE: lines "NAME PROGRAM NUMBER" as written by tests/gpu/check: a speed (images per second) or a time (milliseconds). Prints
a Markdown table, which marks missing measurements. Exit code 1: no measurement."""
import sys

# Name, text, unit, and goals: "times": at least this ratio to another program; "least", "most": a bound on the value.
SPEED, TIME = "images/s", "ms"
ASKED = [
    ("resnet50-train-bf16", "ResNet-50, training, batch 256, bf16", SPEED, [("times", "eager", 1.4), ("times", "compile", 1.2), ("times", "by-rule", 1.0), ("least", "80 % of the byte model's 10,500", 8400)]),
    ("resnet50-infer-bf16", "ResNet-50, prediction, batch 256, bf16", SPEED, [("times", "eager", 2.5), ("times", "compile", 1.4)]),
    ("alexnet-train-bf16", "AlexNet, training, batch 256, bf16", SPEED, [("times", "eager", 1.5), ("times", "compile", 1.2)]),
    ("lenet-train-f32", "LeNet, training, batch 256, f32", SPEED, [("times", "eager", 10), ("times", "graph", 2)]),
    ("lenet-train-bf16", "LeNet, training, batch 256, bf16", SPEED, [("times", "eager", 10), ("times", "graph", 2)]),
    ("deeplabv3plus-train-bf16", "DeepLab v3+, training, batch 16, bf16 (PyTorch: v3)", SPEED, [("times", "eager", 1.3)]),
    ("epoch", "LeNet, one epoch, 60,000 images, 28 x 28", TIME, [("most", "", 20)]),
    ("start", "training with one step on a running pool, shell to shell", TIME, [("most", "", 50)]),
    ("context", "first step: open the GPU", TIME, []),
    ("plans", "first step: plans", TIME, []),
    ("nccl", "first step: NCCL joins two ranks", TIME, []),
]


def main():
    measured = {}
    for line in open(sys.argv[1]):
        what, who, number = line.split()
        measured[what, who] = float(number)
    if not any(who == "gradpool" for _, who in measured):
        sys.exit("no measurement of gradpool in the file")
    print("| measurement | gradpool | other | ratio | goal | reached |\n|---|---|---|---|---|---|")
    for what, text, unit, rules in ASKED:
        ours = measured.get((what, "gradpool"))
        mine = "not measured" if ours is None else f"{ours:,.1f} {unit}"
        if not rules:
            print(f"| {text} | {mine} | | | | |")
        for kind, who, number in rules:
            if kind == "times":
                other = measured.get((what, who))
                against = ("by rule: " if who == "by-rule" else f"PyTorch {who}: ") + ("not measured" if other is None else f"{other:,.1f} {unit}")
                got = None if ours is None or not other else ours / other
                asked, shown, reached = f">= {number:g} x", got and f"{got:.2f} x", got is not None and got >= number
            elif kind == "least":
                got = None if ours is None else ours / number
                against, asked, shown, reached = who, f">= {number:,g} {unit}", got and f"{got:.2f} x", got is not None and got >= 1
            else:
                got = ours
                against, asked, shown, reached = "", f"< {number:g} {unit}", None, got is not None and got < number
            print(f"| {text} | {mine} | {against} | {shown or ''} | {asked} | {'not measured' if got is None else 'yes' if reached else 'no'} |")


main()
