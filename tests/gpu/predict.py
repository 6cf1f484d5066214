#!/usr/bin/env python3
"""tests/gpu/predict.py: estimate the time of a training step or a prediction on an H200, for gradpool and for PyTorch.

    tests/gpu/predict.py                    images per second of each benchmark, goals, and the worst case of each goal
    tests/gpu/predict.py --explain NETWORK  the time of each kernel and layer (with --precision, --phase, --batch, --of)
    tests/gpu/predict.py --compare FILE --network NETWORK
                                            the same beside the output FILE of bench_step --profile kinds
    tests/gpu/predict.py --json             all of it as JSON

These are estimates until a device has run them, for gradpool and for PyTorch.

A library's convolution or product takes max(bytes / memory, FLOP / rate) x overhead. Another kernel takes the largest of
four times: its bytes, its instructions (issue slots, or the latency of a few warps), its sectors in the L1 cache, and the
bytes that its threads have in flight. Each node of a graph adds a constant. model/constants.json has the constants with
their sources, model/kernels_3e87935.json the kernels of that commit, and model/kernels.json the present ones, as tests/gpu/sass.py
counts them."""
import argparse
import collections
import functools
import json
import math
import os
import re
import sys

import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ["gradpool", "3e87935", "eager", "compile", "graph"]
BATCH = 256
L2_BYTES = 62914560  # l2CacheSize in h200.json
ALIGNMENT = 256      # LIBRARY_ALIGNMENT in lower_weights.c
EPOCH_STEPS = math.ceil(60000 / BATCH)


def read(name):
    with open(os.path.join(HERE, "model", name)) as file:
        return json.load(file)


# ---- constants ----

@functools.cache
def constants_table():
    """Return {name: row} over all groups of constants.json."""
    groups = read("constants.json")
    return {name: row for group in ("device", "libraries", "peers") for name, row in groups[group].items()}


OWN_KERNELS = "own_kernels"  # varied like a constant: the time of gradpool's kernels relative to the model


def varied_names():
    return [OWN_KERNELS] + [name for name, row in constants_table().items() if not row.get("exact")]


class Constants:
    """Values of the constants as attributes, with one of them multiplied by a factor."""

    def __init__(self, varied=None, factor=1.0):
        self.own_kernels = factor if varied == OWN_KERNELS else 1.0
        for name, row in constants_table().items():
            value = row["value"] * (factor if name == varied else 1.0)
            low, high = row.get("range", [0, math.inf])
            setattr(self, name, min(max(value, low), high))


# ---- networks ----

Layer = collections.namedtuple("Layer", "name kind x y kernel stride bias relu add pooled first join")
# kind    conv, bn, maxpool, avgpool, dropout, fc, loss
# x, y    shapes (channels, height, width)
# relu    a ReLU follows;  add: a sum with a shortcut precedes it;  pooled: a max pool follows the ReLU
# first   no gradient of x;  join: the gradient of x is a sum of two


def size(shape):
    return shape[0] * shape[1] * shape[2]


class Builder:
    def __init__(self, shape):
        self.at, self.layers = shape, []

    def add(self, name, kind, y, kernel=1, stride=1, x=None, **flags):
        known = {"bias": False, "relu": False, "add": False, "pooled": False, "join": False}
        self.layers.append(Layer(name, kind, x or self.at, y, kernel, stride, first=not self.layers, **{**known, **flags}))
        self.at = y

    def window(self, name, kind, channels, kernel, stride=1, padding=0, x=None, **flags):
        _, height, width = x or self.at
        y = (channels, *((n + 2 * padding - kernel) // stride + 1 for n in (height, width)))
        self.add(name, kind, y, kernel, stride, x, **flags)

    def norm(self, name, **flags):
        self.add(name, "bn", self.at, **flags)

    def fc(self, name, outputs, relu=False):
        self.add(name, "fc", (outputs, 1, 1), bias=True, relu=relu)


def lenet():
    b = Builder((1, 28, 28))
    for name, channels, kernel in (("1", 20, 3), ("2", 50, 5)):
        b.window("conv" + name, "conv", channels, kernel, bias=True, relu=True)
        b.window("pool" + name, "avgpool", channels, 2, 2)
    b.fc("fc1", 128, relu=True)
    b.fc("fc2", 10)
    b.add("loss", "loss", (10, 1, 1))
    return b.layers


def alexnet():
    b = Builder((3, 224, 224))
    for name, channels, kernel, stride, padding in (("1", 64, 11, 4, 2), ("2", 192, 5, 1, 2), ("3", 384, 3, 1, 1),
                                                    ("4", 256, 3, 1, 1), ("5", 256, 3, 1, 1)):
        b.window("conv" + name, "conv", channels, kernel, stride, padding, bias=True, relu=True)
        if name in "125":
            b.window("pool" + name, "maxpool", channels, 3, 2)
    for name, outputs in (("6", 4096), ("7", 4096), ("8", 1000)):
        if name != "8":
            b.add("drop" + name, "dropout", b.at)
        b.fc("fc" + name, outputs, relu=name != "8")
    b.add("loss", "loss", (1000, 1, 1))
    return b.layers


def resnet(counts, expansion):
    b = Builder((3, 224, 224))
    b.window("stem_conv", "conv", 64, 7, 2, 3)
    b.norm("stem_bn", relu=True, pooled=True)
    b.window("stem_pool", "maxpool", 64, 3, 2, 1)
    for stage, count in enumerate(counts):
        width = 64 << stage
        for block in range(count):
            name, x = f"s{stage + 1}_b{block + 1}", b.at
            stride = 2 if stage > 0 and block == 0 else 1
            shapes = [(width, 3, stride), (width, 3, 1)] if expansion == 1 else [(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)]
            shortcut = x[0] != width * expansion or stride != 1
            if shortcut:
                b.window(name + "_short_conv", "conv", width * expansion, 1, stride, 0, x)
                b.norm(name + "_short_bn")
            for i, (channels, kernel, step) in enumerate(shapes):
                last = i == len(shapes) - 1
                b.window(f"{name}_{'abc'[i]}_conv", "conv", channels, kernel, step, kernel // 2, x if i == 0 else None, join=i == 0)
                b.norm(f"{name}_{'abc'[i]}_bn", relu=True, add=last)
    b.window("pool", "avgpool", b.at[0], 7, 7)
    b.fc("fc", 1000)
    b.add("loss", "loss", (1000, 1, 1))
    return b.layers


NETWORKS = {
    "lenet": lenet,
    "resnet18": lambda: resnet([2, 2, 2, 2], 1),
    "resnet50": lambda: resnet([3, 4, 6, 3], 4),
    "alexnet": alexnet,
}


@functools.cache
def layers_of(network):
    return NETWORKS[network]()


def weights(layer):
    if layer.kind == "conv":
        return layer.x[0] * layer.y[0] * layer.kernel ** 2
    return size(layer.x) * layer.y[0] if layer.kind == "fc" else 0


def parameters(layers):
    return sum(weights(l) + (l.y[0] if l.bias else 0) + (2 * l.y[0] if l.kind == "bn" else 0) for l in layers)


# ---- time of a kernel ----

Node = collections.namedtuple("Node", "layer group kernel seconds bound")


class Times:
    """Nodes of one step, in launch order."""

    def __init__(self, constants, precision):
        self.c, self.precision, self.nodes = constants, precision, []
        self.width = 2 if precision == "bf16" else 4
        self.host = 0.0

    def put(self, layer, group, kernel, times):
        bound = max(times, key=times.get)
        seconds = times[bound]
        self.nodes.append(Node(layer, group, kernel, seconds + self.c.node_cost, bound if seconds > self.c.node_cost else "launch"))

    def bytes(self, layer, group, kernel, count, share=1.0):
        """Add a kernel that runs at a share of the speed of the memory."""
        self.put(layer, group, kernel, {"bytes": count / self.c.memory_rate / share})

    def library(self, layer, group, kernel, flop, count, speed=1.0):
        rate = {"bf16": self.c.bf16_rate, "tf32": self.c.tf32_rate, "f32": self.c.f32_rate * speed}[self.precision]
        overhead = self.c.library_overhead
        self.put(layer, group, kernel, {"bytes": overhead * count / self.c.memory_rate, "flop": overhead * flop / rate})

    def padded(self, channels):
        tile = self.c.f32_tile if self.precision == "f32" else self.c.half_tile
        return math.ceil(channels / tile) * tile

    def conv(self, layer, batch, way, extra=0, channels=None, speed=1.0):
        """Add a convolution. way: forward, data or weights. extra: bytes of fused operands."""
        inputs = channels or layer.x[0]
        x, y = batch * size(layer.x) // layer.x[0] * inputs, batch * size(layer.y)
        if layer.kernel < layer.stride and way != "data":
            x //= layer.stride ** 2  # the skipped pixels are not read
        narrow = layer.x[0] if way == "data" else layer.y[0]
        flop = 2 * y * inputs * layer.kernel ** 2 * self.padded(narrow) / narrow
        count = self.width * (x + y + layer.kernel ** 2 * inputs * layer.y[0]) + extra
        self.library(layer.name, "convolutions", "conv " + way, flop, count, speed)

    def product(self, layer, batch, way):
        inputs, outputs = size(layer.x), layer.y[0]
        weight = inputs * outputs * (4 if way == "weights" else self.width)
        self.library(layer.name, "products", "product " + way, 2 * batch * inputs * outputs,
                     self.width * batch * (inputs + outputs) + weight)

    def total(self):
        return sum(n.seconds for n in self.nodes)

    def seconds(self):
        return max(self.total(), self.host)


# ---- gradpool ----

SELECTION = {"elements": 1, "instructions": 970}  # of a sample by feed_begin or feed_index: eight rounds with random numbers


@functools.cache
def kernel_table(generation):
    """Return {kernel: row} with the fields of kernels_3e87935.json."""
    table = dict(read("kernels_3e87935.json")["kernels"])
    if generation == "3e87935":
        return table
    table.update(feed_begin=SELECTION, feed_index=SELECTION)
    for name, row in read("kernels.json")["kernels"].items():
        if row["met"]:
            table[name] = {"elements": 8, "instructions": row["instructions"], "flight": row["loads"], "registers": row["registers"]}
        else:  # the loop also loads parameters
            known = table.get(name, {"elements": 8})
            table[name] = {**known, "instructions": row["instructions"] * known["elements"] / 8, "registers": row["registers"]}
    return table


class Gradpool(Times):
    """The steps of a plan (worker/backend/cuda/plan/lower*.c) and the commit."""

    PARTS_MANY, PARTS_FEW, PARTS_WIDE, ITEMS, CHUNKS_MAX = 4096, 64, 264, 1 << 18, 512
    THREADS, WARPS, UNROLLED = 256, 8, 8  # of batchnorm_sum: threads of a block, warps that share the parts, loads at once
    SHARED, BIAS_BLOCKS, POOL_BLOCKS = 8192, 528, 1056
    WAITING = 1 << 20  # parameters of a plan whose gradients one kernel adds
    COPY_PLANE, COPY_FOUR = 29, 8  # instructions for an element, in the loops of grids_conv.h that copy

    def __init__(self, constants, precision, layers, batch, generation):
        super().__init__(constants, precision)
        self.layers, self.batch, self.old = layers, batch, generation == "3e87935"
        self.kernels = kernel_table(generation)
        self.packed = precision != "f32"
        self.waits = not self.old and parameters(layers) <= self.WAITING
        self.additions = []  # layer and times of the additions that wait
        self.host = constants.step_cost

    def is_wide(self, channels):
        return self.precision == "bf16" and channels % 8 == 0

    def own(self, layer, group, kernel, *arguments, **more):
        """Add a kernel of gradpool. arguments, more: see own_times()."""
        self.put(layer, group, kernel, self.own_times(kernel, *arguments, **more))

    def add_gradient(self, layer, group, kernel, *arguments, **more):
        """Add a kernel that adds to a gradient, at once or with those of the other layers."""
        if not self.waits:
            self.own(layer, group, kernel, *arguments, **more)
        else:
            self.additions.append((layer, self.own_times("add_gradients" if kernel == "weights_unpack" else kernel, *arguments, **more)))

    def add_gradients(self):
        """Add the kernel of all additions that wait: blocks for each of them, which run beside each other."""
        if self.additions:
            layer, _ = self.additions[-1]
            bounds = {bound for _, times in self.additions for bound in times}
            self.put(layer, "weights, solver", "add_gradients",
                     {b: (sum if b in ("bytes", "issue", "l1") else max)(times.get(b, 0) for _, times in self.additions) for b in bounds})

    def own_times(self, kernel, elements, count, channels=None, threads=None, chain=None):
        """Return the times of a kernel of gradpool by bound.
        elements  numbers over all items;  count: bytes
        channels  for kernels whose parameters depend on the channel
        threads   threads that exist, if fewer than elements / numbers of an item
        chain     dependent loads of a thread from the L2 cache, if they differ from the table"""
        c, row = self.c, self.kernels.get(kernel, {"elements": 1})
        items = elements / row["elements"]
        instructions = row.get("instructions", 0)
        cycles = c.multiprocessors * c.clock
        times = {"bytes": count / c.memory_rate}
        times["issue"] = items / 32 * instructions / (cycles * c.schedulers * c.issue_efficiency)
        resident = min(c.threads, c.registers // row.get("registers", 32) // c.block * c.block) * c.multiprocessors
        exist = min(items if threads is None else threads, resident)
        times["latency"] = math.ceil(items / max(exist, 1)) * instructions * c.instruction_latency / c.clock
        if row.get("loads4"):
            distinct = min(32, channels / row["elements"])
            sectors = row["loads4"] * distinct + row.get("loads8", 0) * 2 * distinct
            times["l1"] = (items / 32 * sectors + count / 32) / (c.l1_sectors * cycles)
        flight = row.get("flight") or row.get("ahead", 0) * self.width  # bytes
        if flight:
            latency = c.l2_latency if count <= L2_BYTES else c.memory_latency
            times["in flight"] = count / (exist * flight) * latency
        if chain or row.get("chain"):
            times["chain"] = (chain or row["chain"]) * c.l2_latency
        return {bound: seconds * c.own_kernels for bound, seconds in times.items()}

    # ---- kernels of grids_conv.h and grids_dense.h ----

    def is_direct(self, layer, way):
        """Return whether a kernel replaces the library (plan/lower_direct.c). Strides are not modelled: no such layer is small."""
        narrow = layer.x[0] if way == "data" else layer.y[0]
        return (not self.old and self.precision == "f32" and layer.kernel in (3, 5) and layer.stride == 1 and
                4 <= layer.x[0] <= 64 and layer.y[0] <= 64 and 4 * self.padded(narrow) >= 5 * narrow)

    def copied_planes(self, length, rows, count):
        """Return the instructions of a block for a copy of planes to shared memory."""
        return self.COPY_PLANE * length * rows * count / 32

    def direct(self, layer, way):
        """Add a convolution that a kernel of gradpool computes. A multiprocessor runs whole blocks, and waits for each copy."""
        kernel, height, inputs, outputs, taps = layer.kernel, layer.y[1], layer.x[0], layer.y[0], layer.kernel ** 2
        nines, fives = math.ceil(layer.y[2] / 9), math.ceil(layer.y[2] / 5)
        span, spans, rest = (9, nines, 0) if 9 * nines <= 5 * fives else (5, fives, 0)
        wide, groups = span * spans, math.ceil((inputs if way == "data" else outputs) / 4)
        if way == "forward":
            items = groups * height * spans
            samples = max(1, self.THREADS // items)
            blocks = math.ceil(self.batch / samples) * math.ceil(items / self.THREADS)
            length, rows = (wide + kernel - 1) | 1, height + kernel - 1
            per = samples * rows * length + 4 * groups * taps
            copies = math.ceil(inputs / min(inputs, (self.SHARED - 4 * groups) // per))
            copied = self.copied_planes(length, rows, inputs * samples) + self.COPY_FOUR * 4 * groups * taps * inputs / 32
            multiplications = inputs * taps * span * 4
        elif way == "data":
            items = kernel * height * spans
            some = math.ceil(groups / math.ceil(groups / (self.THREADS // items)))
            blocks = self.batch * math.ceil(groups / some)
            length, per = wide | 1, height * (wide | 1) + 4 * some * taps
            tile = 4 * some * (height + kernel - 1) * (wide + kernel - 1)
            copies = math.ceil(outputs / min(outputs, (self.SHARED - tile) // per))
            copied = self.copied_planes(length, height, outputs) + self.COPY_FOUR * 4 * some * taps * outputs / 32
            multiplications = outputs * kernel * span * 4
        else:
            items = inputs * kernel * groups + groups
            samples = math.ceil(self.batch * items / (self.PARTS_WIDE * self.THREADS))
            chunks = math.ceil(self.batch / samples)
            blocks = chunks * max(1, items // self.THREADS)
            rest = chunks * math.ceil(items % self.THREADS / 32)  # warps of the last blocks, which run beside the others
            loaded, length = min(inputs, (self.THREADS - 1) // (kernel * groups) + 2), (wide + kernel - 1) | 1
            border = loaded * (kernel - 1) * length
            copies = samples * math.ceil(height / min(height, (self.SHARED - border) // ((wide | 1) * 4 * groups + loaded * length)))
            copied = samples * (self.copied_planes(length, height + kernel - 1, loaded) + self.COPY_FOUR * 4 * groups * wide * height / 32)
            multiplications = samples * height * wide * kernel * 4
        c, name = self.c, "direct_conv" + {"forward": "", "data": "_data", "weights": "_weights"}[way]
        warps = (math.ceil(blocks / c.multiprocessors) * self.WARPS + rest / c.multiprocessors) / c.schedulers
        instructions = multiplications / 8 * self.kernels[name]["instructions"] + copied / self.WARPS
        issue = warps * instructions / (c.clock * c.issue_efficiency) + copies * c.l2_latency
        count = self.width * (self.batch * (size(layer.x) + size(layer.y)) + weights(layer))
        extra = {"data": self.width * self.batch * size(layer.x), "weights": 0, "forward": 0}[way]
        self.put(layer.name, "convolutions", name, {"issue": issue * c.own_kernels, "bytes": (count + extra) / c.memory_rate * c.own_kernels})
        if way == "weights":
            self.parts_add(layer, "convolutions", chunks, weights(layer) + (layer.y[0] if layer.bias and not self.pool_sums_bias(layer) else 0))

    def parts_add(self, layer, group, chunks, count):
        """Add the kernel that adds up partial sums. A thread has four loads at once."""
        by_warp = not self.old and chunks >= 32 and count < 1 << 13
        self.add_gradient(layer.name, group, "parts_add_warp" if by_warp else "parts_add", count, 4 * count * (chunks + 1),
                          chain=1 if self.old else math.ceil(chunks / (32 if by_warp else 4)))

    def has_windows(self, layer):
        """Return whether the windows of a pool do not overlap and are those of a kernel for dense images."""
        return not self.old and self.precision == "f32" and layer.kernel == 2 and layer.stride == 2

    def bias_chunks(self, layer, blocks):
        return min(self.batch, blocks // layer.y[0])

    def pool_sums_bias(self, layer):
        """Return whether the pool after a convolution also sums the gradient of the bias (window_bias_add() in plan/lower.c)."""
        pool = self.layers[self.layers.index(layer) + 1]
        chunks = self.bias_chunks(layer, self.POOL_BLOCKS)
        return (layer.kind == "conv" and layer.bias and pool.kind in ("maxpool", "avgpool") and self.has_windows(pool) and chunks > 0 and
                self.batch // chunks * self.windows(pool) >= self.THREADS)

    def windows(self, pool):
        return math.ceil(pool.x[1] / 2) * math.ceil(pool.x[2] / 2)

    def chunks(self, each, units, most):
        return max(1, min(self.ITEMS // each, most, units))

    # ---- a training ----

    def pack(self):
        """Add the copies of weights and biases that libraries read: in their type and order, and aligned."""
        offsets, at, copies = {}, 0, []
        for layer in reversed(self.layers):
            offsets[layer.name] = at
            at += parameters([layer])
        for layer in self.layers:
            count = weights(layer)
            if not count:
                continue
            pixels = layer.kernel ** 2 if layer.kind == "conv" else layer.x[1] * layer.x[2]
            inputs = self.input_channels(layer)
            same_order = inputs == layer.x[0] and (not self.packed or inputs == 1 or pixels == 1)
            if layer.kind == "conv" and self.is_direct(layer, "forward") and (layer.first or self.is_direct(layer, "data")):
                continue
            if self.width == 2 or not same_order or 4 * offsets[layer.name] % ALIGNMENT:
                copies.append((layer.name, "weights_pack", count, count * (4 + self.width), same_order or inputs % 8 == 0))
            width = 4 if self.is_last(layer) else self.width  # losses read float32
            if layer.bias and (width == 2 or 4 * (offsets[layer.name] + count) % ALIGNMENT):
                copies.append((layer.name, "vector_pack", layer.y[0], layer.y[0] * (4 + width), False))
        if self.old:
            for name, kernel, count, moved, _ in copies:
                self.own(name, "weights, solver", kernel, count, moved)
        elif copies:
            # one kernel for all: eight weights at a time where their order allows it
            single, eight = self.kernels["weights_pack"], self.kernels["prepare_weights"]
            ratio = single["instructions"] / single["elements"] / (eight["instructions"] / eight["elements"])
            self.own(copies[0][0], "weights, solver", "prepare_weights", sum(n * (1 if wide else ratio) for _, _, n, _, wide in copies),
                     sum(moved for _, _, _, moved, _ in copies))

    def is_last(self, layer):
        return layer is self.layers[-2]

    def unpack(self, layer, width):
        self.add_gradient(layer.name, "weights, solver", "weights_unpack", weights(layer), weights(layer) * (4 + width))

    def input_channels(self, layer):
        return 8 if layer.first and self.width == 2 and layer.x[0] < 8 else layer.x[0]

    def sums(self, layer, forward):
        """Add the kernels that sum over all pixels of a batch norm."""
        channels, wide = layer.y[0], self.is_wide(layer.y[0])
        elements = self.batch * size(layer.y)
        at = layer.name.replace("_bn", "_conv") if forward and wide else layer.name  # cuDNN may compute them with the convolution
        group = "batch norm: sums " + ("forward" if forward else "back")
        each = channels // 8 if wide else channels
        units = self.batch * layer.y[1] * layer.y[2]
        name = wide_or("batchnorm_part" if forward else "batchnorm_backward_part", wide)
        bytes_each = self.width if forward else 2 * self.width + (0.125 if layer.relu and not layer.add else 0)
        if self.old or not wide:
            parts = self.chunks(each, units // (16 if wide else 1), self.PARTS_MANY)
            threads, chain = parts * each, None
        else:
            blocks = math.ceil(each / self.THREADS)
            parts = min(math.ceil(units / (self.THREADS // each if blocks == 1 else 1)), self.PARTS_WIDE // blocks)
            threads, chain = parts * blocks * self.THREADS, math.ceil(parts / self.WARPS / self.UNROLLED) + 1
        self.own(at, group, name, elements, elements * bytes_each + parts * channels * 16, threads=threads)
        if chain is None and parts > 2 * self.PARTS_FEW:
            self.own(at, "batch norm: small", "parts_fold", 2 * channels * self.PARTS_FEW, parts * channels * 16)
            parts = self.PARTS_FEW
        self.own(at, "batch norm: small", "batchnorm_sum" if forward else "batchnorm_backward_sum", 2 * channels * parts,
                 16 * channels * parts, threads=channels if self.old else math.ceil(channels / 16) * self.THREADS, chain=chain)
        if forward and (self.old or wide):  # a library may have computed the sums
            self.own(layer.name, "batch norm: small", "batchnorm_moments" if self.old else "batchnorm_sum", 2 * channels, 0,
                     threads=channels, chain=1)

    def forward(self, layer):
        n, e = self.batch, self.width
        x, y = n * size(layer.x), n * size(layer.y)
        wide = "wide_" if self.is_wide(layer.y[0]) else ""
        if layer.kind == "conv" and self.is_direct(layer, "forward"):
            self.direct(layer, "forward")
        elif layer.kind == "conv":
            self.conv(layer, n, "forward", channels=self.input_channels(layer))
        elif layer.kind == "bn":
            self.sums(layer, True)
            if layer.pooled:
                pooled = y // 4
                self.own(layer.name, "stem: norm and pool", wide + "batchnorm_pool", pooled, x * e + pooled * (e + 4))
            else:
                count = x * e + y * e * (2 if layer.add else 1) + (y / 8 if layer.relu and wide else 0)
                self.own(layer.name, "batch norm: apply forward", wide + "batchnorm_apply", y, count, channels=layer.y[0])
        elif layer.kind in ("maxpool", "avgpool"):
            if layer.name != "stem_pool":
                name = "wide_pool" if wide and "wide_pool" in self.kernels else "window_pool" if self.has_windows(layer) else "pool"
                self.own(layer.name, "pools", name, y, x * e + y * (e + (4 if layer.kind == "maxpool" else 0)))
        elif layer.kind == "dropout":
            self.own(layer.name, "dropout", "dropout", x, 2 * x * e)
        elif layer.kind == "fc":
            self.product(layer, n, "forward")
        else:
            self.loss(layer, x)
            self.own(layer.name, "loss", "loss_sums", n, 0)

    def backward(self, layer):
        n, e = self.batch, self.width
        x, y = n * size(layer.x), n * size(layer.y)
        wide = "wide_" if self.is_wide(layer.y[0]) else ""
        if layer.kind == "conv":
            if self.is_direct(layer, "weights"):
                self.direct(layer, "weights")
            else:
                self.conv(layer, n, "weights", channels=self.input_channels(layer))
                self.unpack(layer, e)
            if layer.bias and not self.is_direct(layer, "weights") and not self.pool_sums_bias(layer):
                self.bias_gradient(layer, y)
            if self.is_direct(layer, "data") and not layer.first:
                self.direct(layer, "data")
            elif not layer.first:
                self.conv(layer, n, "data", extra=x * e if layer.bias else 0)
            if layer.join:
                self.own(layer.name, "sums of gradients", wide_or("add", self.is_wide(layer.x[0])), x, 3 * x * e)
        elif layer.kind == "bn":
            if layer.add and self.old:
                for _ in range(2):
                    self.own(layer.name[:-4] + "sum", "copies of gradients", "reshape", y, 2 * y * e)
            self.sums(layer, False)
            self.own(layer.name, "batch norm: apply back", wide + "batchnorm_backward_apply", y, 3 * y * e, channels=layer.y[0])
        elif layer.kind in ("maxpool", "avgpool"):
            name = ("wide_pool_backward" if wide and "wide_pool_backward" in self.kernels else
                    "window_pool_backward" if self.has_windows(layer) else "pool_backward")
            group = "stem: pool back" if layer.name == "stem_pool" else "pools"
            before = self.layers[self.layers.index(layer) - 1]
            masked = not before.pooled and before.relu and not self.old
            index = 4 if layer.kind == "maxpool" or self.old else 0
            chunks, threads = 0, None
            if self.pool_sums_bias(before):
                name, chunks = "window_pool_bias", self.bias_chunks(before, self.POOL_BLOCKS)
                share = math.ceil(self.batch / chunks) * self.windows(layer)  # of a block; its last items leave threads idle
                threads = chunks * layer.x[0] * min(self.THREADS, share)
            self.own(layer.name, group, name, x, x * e * (2 if masked or (self.old and layer.kind == "maxpool") else 1) + y * (e + index), threads=threads)
            if chunks:
                self.parts_add(layer, group, chunks, layer.x[0])
        elif layer.kind == "dropout":
            self.own(layer.name, "dropout", "dropout", x, 2 * x * e)
        elif layer.kind == "fc":
            if layer.relu and self.layers[self.layers.index(layer) + 1].kind == "dropout":
                self.own(layer.name.replace("fc", "relu"), "dropout", wide + "relu_backward", y, 3 * y * e)
            to_narrow = self.is_last(layer) and e == 2
            if to_narrow:
                self.own(layer.name, "products", "reshape", y, 6 * y)
            self.product(layer, n, "weights")
            pixels = layer.x[1] * layer.x[2]
            one = not self.old and (self.precision == "f32" or pixels == 1 or layer.x[0] == 1) and 4 * weights(layer) % ALIGNMENT == 0
            self.unpack(layer, 4)
            if not one:
                self.add_gradient(layer.name, "weights, solver", "weights_unpack", layer.y[0], 8 * layer.y[0])
            if to_narrow:
                self.own(layer.name, "products", "reshape", y, 6 * y)
            self.product(layer, n, "data")

    def bias_gradient(self, layer, y):
        if not self.old and self.is_wide(layer.y[0]):
            self.own(layer.name, "bias gradients", "wide_bias_part", y, y * self.width, threads=2 * self.c.multiprocessors * self.c.block)
            self.add_gradient(layer.name, "bias gradients", "parts_add_warp", layer.y[0], 0)
            return
        if not self.old and self.precision == "f32" and layer.y[1] * layer.y[2] % 4 == 0 and layer.y[0] <= self.BIAS_BLOCKS:
            chunks = self.bias_chunks(layer, self.BIAS_BLOCKS)
            self.own(layer.name, "bias gradients", "plane_bias_part", y, y * self.width, threads=chunks * layer.y[0] * self.THREADS)
            self.parts_add(layer, "bias gradients", chunks, layer.y[0])
            return
        chunks = self.chunks(layer.y[0], self.batch * layer.y[1] * layer.y[2], self.CHUNKS_MAX)
        self.own(layer.name, "bias gradients", "bias_part", y, y * self.width, threads=chunks * layer.y[0])
        self.add_gradient(layer.name, "bias gradients", "parts_add" if self.old or chunks < 32 else "parts_add_warp", layer.y[0], 0)

    def loss(self, layer, x):
        by_warp = not self.old and size(layer.x) >= 8
        self.own(layer.name, "loss", "xent_warp" if by_warp else "xent", x, 8 * x, threads=self.batch * (32 if by_warp else 1))

    def normalize(self):
        shape, channels = self.layers[0].x, self.input_channels(self.layers[0])
        elements = self.batch * size(shape) // shape[0] * channels
        self.own("input", "input", wide_or("normalize", not self.old and channels != shape[0]), elements,
                 self.batch * size(shape) + elements * self.width)

    def train(self):
        count = parameters(self.layers)
        for name in (("feed_turn", "feed_index", "feed_rows") if self.old else ("feed_begin",) if self.batch <= 2 * self.THREADS else
                     ("feed_turn", "feed_index")):
            self.own("input", "input", name, self.batch, 0)
        self.pack()
        self.normalize()
        for layer in self.layers:
            self.forward(layer)
        for layer in reversed(self.layers):
            self.backward(layer)
        self.add_gradients()
        for name in ("stamp", "stamp", "latch")[0 if self.old else 2:]:
            self.own("step", "step", name, 1, 0)
        if self.old or any(l.kind == "bn" for l in self.layers):
            means = count if self.old else sum(l.y[0] for l in self.layers if l.kind == "bn")
            self.own("step", "weights, solver", "statistics", means, 24 * means if not self.old else 0)
        self.own("step", "weights, solver", "sgdm", count, 20 * count)
        self.own("step", "step", "tell", 1, 0)
        return self

    # ---- a prediction ----

    def infer(self):
        n, e = self.batch, self.width
        self.own("input", "input", "feed_turn", 1, 0)
        self.normalize()
        for i, layer in enumerate(self.layers):
            x, y = n * size(layer.x), n * size(layer.y)
            if layer.kind == "conv":
                norm = self.layers[i + 1]
                self.conv(layer, n, "forward", extra=y * e if norm.kind == "bn" and norm.add else 0, channels=self.input_channels(layer))
            elif layer.kind in ("maxpool", "avgpool"):
                name = "wide_pool" if self.is_wide(layer.y[0]) and "wide_pool" in self.kernels else "pool"
                self.own(layer.name, "pools", name, y, (x + y) * e)
            elif layer.kind == "fc":
                self.product(layer, n, "forward")
            elif layer.kind == "loss":
                self.loss(layer, x)
                self.own(layer.name, "loss", "predict_answer", x, 8 * x)
        return self


def wide_or(name, wide):
    return ("wide_" if wide else "") + name


# ---- PyTorch ----

class Torch(Times):
    """PyTorch's kernels for the same network, channels last, bf16 by autocast, convolutions and products as in gradpool.

    eager    each operation is a kernel; the host limits small networks
    graph    the same kernels as one CUDA graph
    compile  operations between convolutions are fused; the host is assumed not to limit"""

    def __init__(self, constants, precision, layers, batch, mode):
        super().__init__(constants, precision)
        self.layers, self.batch, self.compiled, self.mode = layers, batch, mode == "compile", mode
        self.share = constants.torch_compiled if self.compiled else constants.torch_elementwise
        self.norm_share = constants.torch_compiled if self.compiled else constants.torch_batchnorm
        self.speed = constants.torch_f32_conv

    def cast(self, layer):
        if self.precision == "bf16" and weights(layer):
            self.bytes(layer.name, "casts", "cast", 6 * weights(layer), self.share)

    def relu(self, layer, y, backward):
        if layer.relu and not self.compiled:
            self.bytes(layer.name, "relu", "relu", y * self.width * (3 if backward else 2), self.share)

    def forward(self, layer, training):
        n, e = self.batch, self.width
        x, y = n * size(layer.x), n * size(layer.y)
        if layer.kind == "conv":
            self.cast(layer)
            self.conv(layer, n, "forward", speed=self.speed)
            if layer.bias:
                self.bytes(layer.name, "bias", "bias", 2 * y * e, self.share)
            self.relu(layer, y, False)
        elif layer.kind == "bn":
            if training:
                self.bytes(layer.name, "batch norm", "sums", x * e, self.norm_share)
            fused = layer.add and self.compiled
            self.bytes(layer.name, "batch norm", "apply", (x + y + (x if fused else 0)) * e, self.norm_share)
            if layer.add and not self.compiled:
                self.bytes(layer.name, "sums", "add", 3 * y * e, self.share)
            self.relu(layer, y, False)
        elif layer.kind in ("maxpool", "avgpool"):
            index = 0 if layer.kind == "avgpool" else 1 if self.compiled else 8
            self.bytes(layer.name, "pools", "pool", x * e + y * (e + index), self.share)
        elif layer.kind == "dropout" and training:
            self.bytes(layer.name, "dropout", "dropout", x * (2 * e + 1), self.share)
        elif layer.kind == "fc":
            self.cast(layer)
            self.product(layer, n, "forward")
            self.relu(layer, y, False)
        elif layer.kind == "loss" and training:
            for name in ("log_softmax", "nll_loss"):
                self.bytes(layer.name, "loss", name, 8 * x, self.share)

    def backward(self, layer):
        n, e = self.batch, self.width
        x, y = n * size(layer.x), n * size(layer.y)
        self.relu(layer, y, True)
        if layer.kind == "conv":
            self.conv(layer, n, "weights", speed=self.speed)
            self.cast(layer)
            if layer.bias:
                self.bytes(layer.name, "bias", "bias", y * e, self.share)
            if not layer.first:
                self.conv(layer, n, "data", speed=self.speed)
            if layer.join and not self.compiled:
                self.bytes(layer.name, "sums", "add", 3 * x * e, self.share)
        elif layer.kind == "bn":
            # compiled: both passes read y for the mask of the ReLU, and a second gradient after a sum
            more = (y if layer.relu else 0) + (y if layer.add else 0) if self.compiled else 0
            self.bytes(layer.name, "batch norm", "sums back", (x + y + more) * e, self.norm_share)
            self.bytes(layer.name, "batch norm", "apply back", (2 * x + y + more) * e, self.norm_share)
        elif layer.kind in ("maxpool", "avgpool"):
            index = 0 if layer.kind == "avgpool" else 1 if self.compiled else 8
            self.bytes(layer.name, "pools", "pool back", x * e + y * (e + index), self.share)
        elif layer.kind == "dropout":
            self.bytes(layer.name, "dropout", "dropout", x * (2 * e + 1), self.share)
        elif layer.kind == "fc":
            self.product(layer, n, "weights")
            self.cast(layer)
            self.bytes(layer.name, "bias", "bias", y * e, self.share)
            self.product(layer, n, "data")
        elif layer.kind == "loss":
            for name in ("nll_loss", "log_softmax"):
                self.bytes(layer.name, "loss", name, 8 * x, self.share)

    def run(self, training):
        c, modules = self.c, sum(1 + l.relu + l.add for l in self.layers)
        if self.precision == "bf16":
            x = self.batch * size(self.layers[0].x)
            self.bytes("input", "casts", "cast", 6 * x, self.share)
        for layer in self.layers:
            self.forward(layer, training)
        if training:
            for layer in reversed(self.layers):
                self.backward(layer)
            self.bytes("step", "solver", "sgd", 20 * parameters(self.layers), self.share)
        if self.mode == "eager":
            self.host = c.torch_step + modules * c.torch_module_train if training else modules * c.torch_module_infer
        return self


# ---- predictions ----

def times_of(constants, network, program, precision="bf16", phase="train", batch=BATCH):
    layers = layers_of(network)
    if program in ("gradpool", "3e87935"):
        model = Gradpool(constants, precision, layers, batch, program)
        return model.train() if phase == "train" else model.infer()
    return Torch(constants, precision, layers, batch, program).run(phase == "train")


def step_seconds(constants, network, program, precision="bf16", phase="train", batch=BATCH):
    """Return the time of a step. phase: train, copied (a training that copies samples), infer (copies samples too)."""
    model = times_of(constants, network, program, precision, "infer" if phase == "infer" else "train", batch)
    if phase == "train":
        return model.seconds()
    count = batch * size(layers_of(network)[0].x)
    bus = count / constants.pcie_rate
    if program not in ("gradpool", "3e87935"):  # copies and kernels in one stream
        return max(model.total() + bus, model.host)
    page_locked = program == "gradpool" and phase == "copied"  # else the host copies the samples to page-locked memory
    return max(model.seconds(), bus, 0 if page_locked else count / constants.host_copy_rate)


class Predictions:
    """Predicted values of the measurements in ratios.py, computed on demand."""

    def __init__(self, constants):
        self.constants, self.known = constants, {}

    def value(self, what, program):
        """Return images/s or ms. None: not modelled."""
        if (what, program) not in self.known:
            self.known[what, program] = self.compute(what, program)
        return self.known[what, program]

    def compute(self, what, program):
        if program not in PROGRAMS:
            return None
        if what == "epoch":
            return 1e3 * EPOCH_STEPS * times_of(self.constants, "lenet", program, "f32").seconds() if program == "gradpool" else None
        words = what.split("-")
        if len(words) != 3 or words[0] not in NETWORKS:
            return None
        return BATCH / step_seconds(self.constants, words[0], program, words[2], words[1])

    def ratio(self, what, rule):
        """Return how often the predicted value exceeds the one in a rule; above the required number: reached. None: not modelled."""
        ours = self.value(what, "gradpool")
        if rule.kind == "times":
            other = self.value(what, rule.against)
            return None if ours is None or other is None else ours / other
        return ours


def reached(rule, got, required):
    return got < required if rule.kind == "most" else got >= required


def worst_of(what, rule, share=0.15):
    """Return (value, constant, factor) of the worst prediction when one constant changes by a share in either direction."""
    worst = None
    for name in varied_names():
        for factor in (1 - share, 1 + share):
            got = Predictions(Constants(name, factor)).ratio(what, rule)
            if worst is None or (got > worst[0] if rule.kind == "most" else got < worst[0]):
                worst = (got, name, factor)
    return worst


def goals():
    """Return one row for each requirement of ratios.py."""
    nominal = Predictions(Constants())
    rows = []
    for what, text, unit, rules in ratios.ASKED:
        for rule in rules:
            row = {"what": what, "text": text, "against": rule.against, "must": rule.must, "goal": rule.goal}
            got = nominal.ratio(what, rule)
            row["predicted"] = got
            if got is not None:
                value, name, factor = worst_of(what, rule)
                row.update(worst=value, worst_constant=name, worst_factor=factor,
                           goal_reached=reached(rule, got, rule.goal),
                           must_reached=None if rule.must is None else reached(rule, got, rule.must),
                           must_reached_at_worst=None if rule.must is None else reached(rule, value, rule.must))
            rows.append(row)
    return rows


BENCHMARKS = [("resnet50", "bf16", "train"), ("resnet50", "bf16", "copied"), ("resnet50", "bf16", "infer"), ("resnet50", "tf32", "train"), ("resnet50", "f32", "train"),
              ("resnet18", "bf16", "train"), ("resnet18", "tf32", "train"), ("resnet18", "f32", "train"),
              ("alexnet", "bf16", "train"), ("alexnet", "bf16", "copied"), ("alexnet", "tf32", "train"), ("alexnet", "f32", "train"),
              ("lenet", "f32", "train"), ("lenet", "tf32", "train"), ("lenet", "bf16", "train")]


def speeds(constants):
    rows = []
    for network, precision, phase in BENCHMARKS:
        row = {"network": network, "precision": precision, "phase": phase, "batch": BATCH}
        for program in PROGRAMS:
            row[program] = None if program == "graph" and phase != "train" else BATCH / step_seconds(constants, network, program, precision, phase)
        rows.append(row)
    return rows


def sums_by(nodes, field):
    totals = {}
    for node in nodes:
        key = getattr(node, field)
        totals[key] = totals.get(key, 0.0) + node.seconds
    return totals


# ---- output ----

def print_speeds(rows):
    columns = PROGRAMS
    print(f"Estimates: images/s on an H200, batch {BATCH}. PyTorch: eager, compile, graph. copied: a training that copies samples.\n")
    print(f"{'network':10}{'precision':10}{'phase':7}" + "".join(f"{c:>13}" for c in columns))
    for row in rows:
        print(f"{row['network']:10}{row['precision']:10}{row['phase']:7}" + "".join(f"{row[c]:13,.0f}" if row[c] else " " * 12 + "-" for c in columns))


def print_goals(rows):
    print("\n| measurement | against | predicted | must | predicted | worst with one constant 15 % off | predicted | goal | predicted |\n"
          "|---|---|---|---|---|---|---|---|---|")
    word = {None: "", True: "yes", False: "MISSED"}
    for r in rows:
        if r["predicted"] is None:
            print(f"| {r['text']} | {r['against']} | not modelled | {r['must'] or ''} | | | | {r['goal']:g} | |")
            continue
        worst = f"{r['worst']:,.2f} ({r['worst_constant']} x {r['worst_factor']:g})"
        print(f"| {r['text']} | {r['against']} | {r['predicted']:,.2f} | {r['must'] or ''} | {word[r['must_reached']]} | {worst} | "
              f"{word[r['must_reached_at_worst']]} | {r['goal']:g} | {'yes' if r['goal_reached'] else 'no'} |")


def explain(arguments):
    """Print the nodes of a step, and their sums."""
    model = times_of(Constants(), arguments.explain, arguments.of, arguments.precision, arguments.phase, arguments.batch)
    for node in model.nodes:
        print(f"{1e6 * node.seconds:10.1f} us  {node.layer:18}{node.kernel:30}{node.bound}")
    for field in ("layer", "group"):
        print(f"\nby {field}:")
        for name, seconds in sums_by(model.nodes, field).items():
            print(f"{1e3 * seconds:10.3f} ms  {name}")
    print(f"\n{1e3 * model.total():10.3f} ms on the device, {1e3 * model.host:.3f} ms on the host, {len(model.nodes)} nodes: "
          f"{arguments.batch / model.seconds():,.0f} images/s (estimate)")


# Operations in a profile whose engines have names of the library, and kernels in parts of a call that are no operation.
LIBRARY_STEPS = {"conv2d": "conv forward", "conv2d_backward_data": "conv data", "conv2d_backward_weights": "conv weights",
                 "fc": "product forward", "fc_backward_data": "product data", "fc_backward_weights": "product weights"}
PARTS = {"feed_begin": "input", "feed_turn": "input", "feed_index": "input", "feed_rows": "input", "stamp": "commit", "latch": "commit", "statistics": "commit",
         "sgdm": "commit", "tell": "commit"}
LIBRARY_NAME = re.compile(r"(\d+-)?[0-9a-f]{8}")  # of an engine or algorithm
PROFILE_LINE = re.compile(r" *([0-9.]+) ms +[0-9.]+% +(?:forward|backward) +(\S+) +(\S+ +)?[0-9]+ steps$")
APART = 0.25


def read_profile(lines):
    """Return {kernel: ms} of the lines "... ms ... N steps" in the output of bench_step --profile."""
    measured = {}
    for line in lines:
        found = PROFILE_LINE.match(line.rstrip())
        if found is None:
            continue
        ms, what, kernel = float(found[1]), found[2], (found[3] or "").strip()
        if LIBRARY_NAME.fullmatch(kernel):
            kernel = LIBRARY_STEPS.get(what, what)
        kernel = kernel or what
        measured[kernel] = measured.get(kernel, 0.0) + ms
    return measured


def compare(arguments):
    """Print measured and predicted times by kernel, and mark those that are more than 25 % apart."""
    with open(arguments.compare) as file:
        measured = read_profile(file)
    if not measured:
        sys.exit(f"{arguments.compare} has no line of a profile: expected the output of bench_step --profile kinds")
    nodes = times_of(Constants(), arguments.network, "gradpool", arguments.precision, arguments.phase, arguments.batch).nodes
    predicted = {}
    for node in nodes:
        kernel = PARTS.get(node.kernel, node.kernel)
        predicted[kernel] = predicted.get(kernel, 0.0) + 1e3 * node.seconds
    print(f"{'kernel':32}{'measured':>12}{'predicted':>12}")
    for kernel in sorted(measured.keys() | predicted.keys(), key=lambda k: -measured.get(k, 0.0)):
        got, expected = measured.get(kernel), predicted.get(kernel)
        note = "not predicted" if expected is None else "not measured" if got is None else ""
        if got is not None and expected is not None and abs(got / expected - 1) > APART:
            note = f"{got / expected:.2f} x"
        print(f"{kernel:32}" + "".join(f"{'-' if v is None else f'{v:.3f} ms':>12}" for v in (got, expected)) + f"  {note}".rstrip())
    print(f"{'all':32}{sum(measured.values()):9.3f} ms{sum(predicted.values()):9.3f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--explain", metavar="NETWORK", choices=list(NETWORKS))
    parser.add_argument("--compare", metavar="FILE")
    parser.add_argument("--network", default="resnet50", choices=list(NETWORKS))
    parser.add_argument("--precision", default="bf16", choices=["f32", "tf32", "bf16"])
    parser.add_argument("--phase", default="train", choices=["train", "infer"])
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--of", default="gradpool", choices=PROGRAMS, help="gradpool, gradpool at 3e87935, or PyTorch")
    arguments = parser.parse_args()
    if arguments.explain:
        return explain(arguments)
    if arguments.compare:
        return compare(arguments)
    constants = Constants()
    if arguments.json:
        layers = {}
        for network, precision, phase in BENCHMARKS:
            for program in PROGRAMS:
                nodes = times_of(constants, network, program, precision, "infer" if phase == "infer" else "train").nodes
                layers[f"{network}-{phase}-{precision}", program] = {k: 1e3 * v for k, v in sums_by(nodes, "layer").items()}
        return print(json.dumps({"estimate": True, "speeds": speeds(constants), "goals": goals(),
                                 "layers_ms": [{"what": w, "program": p, "layers": l} for (w, p), l in layers.items()]}, indent=1))
    print_speeds(speeds(constants))
    rows = goals()
    print_goals(rows)
    musts = [r for r in rows if r["must"] is not None]
    missed = [f"{r['text']} ({r['against']})" for r in musts if not r["must_reached_at_worst"]]
    print(f"\n{len(musts) - len(missed)} of {len(musts)} musts are predicted with each constant 15 % off; missed: {'; '.join(missed) or 'none'}")


if __name__ == "__main__":
    main()
