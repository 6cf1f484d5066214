"""Bounds on the machine instructions of the kernels that carry a training step, for tests/gpu/sass.py.

A bound is a number of instructions that one thread executes for eight elements. Instructions of one warp occupy one of
the four issue slots that a multiprocessor has per cycle, and a kernel reaches about three quarters of the slots. The
bytes of eight elements per lane take

    cycles = 32 lanes * bytes / (4.3e12 bytes/s / (132 multiprocessors * 1.75e9 Hz)) = 1.72 * bytes

of a multiprocessor's share of the memory bandwidth of an H200. A kernel may take 1.5 times as long:

    bound = 1.5 * 0.75 * 4 slots * cycles = 7.7 * bytes

The two large kernels of batch norm have tighter bounds, so that they run at the speed of the memory."""

BANDWIDTH, MULTIPROCESSORS, CLOCK_HZ = 4.3e12, 132, 1.75e9
LANES, SLOTS, ISSUED, SLOWER = 32, 4, 0.75, 1.5


def allowed(bytes_per_eight):
    cycles = LANES * bytes_per_eight * MULTIPROCESSORS * CLOCK_HZ / BANDWIDTH
    return int(SLOWER * ISSUED * SLOTS * cycles)


class Row:
    """A kernel's bound.
    bound  instructions for eight elements
    unit   instruction that marks progress in the main loop, and its number for eight elements
    trips  average iterations of the loops inside the main loop, the outer one first
    loads  scalar loads that the main loop may contain: data, not parameters"""

    def __init__(self, bound, unit, per_eight=1, trips=(), loads=()):
        self.bound, self.unit, self.per_eight, self.trips, self.loads = bound, unit, per_eight, trips, set(loads)


LOAD, STORE, BYTE, MULTIPLY = "LDG.E.128", "STG.E.128", "LDG.E.U8", "FFMA"
PAIR = "STG.E.64"

BOUNDS = {
    # x and y in 2 bytes each, and a mask byte: 33 bytes would allow 255.
    "wide_batchnorm_apply": Row(80, STORE),
    # x, dy, dx in 2 bytes each, and a mask byte: 49 bytes would allow 379.
    "wide_batchnorm_backward_apply": Row(130, STORE, loads=[BYTE]),
    # x: 16 bytes. The other direction reads x, dy and a mask byte: 33 bytes.
    "wide_batchnorm_part": Row(allowed(16), LOAD),
    "wide_batchnorm_backward_part": Row(allowed(33), LOAD, 3, loads=[BYTE]),  # the variant that reads a ReLU's output
    # Sums of float64: 64 bytes.
    "batchnorm_sum": Row(allowed(64), "LDG.E.64", 8),
    "batchnorm_backward_sum": Row(allowed(64), "LDG.E.64", 8),
    "parts_fold": Row(allowed(64), "LDG.E.64", 8),
    # Windows of 3 x 3 with stride 2 read four elements of x for one of y: 64 bytes, and write y and, at the least, a byte per
    # index: 24. Three columns of a window are read at once.
    "wide_batchnorm_pool": Row(allowed(88), STORE, 3, trips=(3,)),  # y and two of the index
    "wide_pool": Row(allowed(88), STORE, 3, trips=(3,)),  # y and two of the index
    # dx in 16 bytes, a quarter of dy's 16 and of 32 bytes of indices: 28. A pixel belongs to 1.5 x 1.5 windows.
    "wide_pool_backward": Row(allowed(28), STORE, trips=(1.5, 1.5)),
    # Two inputs, one output, a mask byte: 49 bytes.
    "wide_add": Row(allowed(49), STORE, loads=[BYTE]),
    # Samples of eight channels in a byte each, 8, and the input image, 16. Samples may also be float32.
    "wide_normalize": Row(allowed(24), STORE, loads=[BYTE, "LDG.E"]),
    # dy: 16 bytes.
    "wide_bias_part": Row(allowed(16), LOAD),
    # Logits and their gradient or their scores, 32 bytes each. A call has one of them, but the loop has both stores.
    "xent_warp": Row(allowed(64), STORE, 4),
    # float32 gradients, 32 bytes; then float64 sums, 64 bytes.
    "squares_part": Row(allowed(32), LOAD, 2),
    "squares_sum": Row(allowed(64), LOAD, 4),
    # float32, 32 bytes each: reads gradient, weight and one or two moments, writes all but the gradient.
    "sgdm": Row(allowed(160), STORE, 4),
    "adam": Row(allowed(224), STORE, 6),
    "rmsprop": Row(allowed(160), STORE, 4),
    # Mean and variance, two of each are read and one of each is written: 192 bytes. A network has some 10,000 of them, whose
    # offsets in the blob need not be aligned, so they are not loaded as vectors.
    "statistics": Row(allowed(192), "STG.E", 16, loads=["LDG.E"]),
    # float32 weights, 32 bytes, and their copy, 16. Kernels larger than 1 x 1 gather the weights.
    "prepare_weights": Row(allowed(48), STORE, loads=["LDG.E"]),
    # The library's gradient, 16 bytes or 32 in float32, gathered and added to 32 bytes of float32.
    "weights_unpack": Row(allowed(80), STORE, 2, loads=["LDG.E.U16", "LDG.E"]),
    # The same, for several gradients.
    "add_gradients": Row(allowed(80), STORE, 2, loads=["LDG.E.U16", "LDG.E"]),
    # float32 windows of 2 x 2 pixels, eight of which read 32 elements and write eight: 160 bytes. A row of a window is a load.
    "window_pool": Row(allowed(160), "STG.E", 8, loads=["LDG.E.64", "LDG.E"]),
    # Eight elements of dx and of the relu's output, 32 bytes each, and two of dy: 72 bytes.
    "window_pool_backward": Row(allowed(72), PAIR, 4, loads=["LDG.E.64", "LDG.E"]),
    "window_pool_bias": Row(allowed(72), PAIR, 4, loads=["LDG.E.64", "LDG.E"]),
    # dy: 32 bytes.
    "plane_bias_part": Row(allowed(32), LOAD, 2),
    # Limited by arithmetic: eight multiplications with addition, and at most a fifth as many other instructions.
    "direct_conv": Row(9.6, MULTIPLY, 8),
    "direct_conv_data": Row(9.6, MULTIPLY, 8),
    "direct_conv_weights": Row(9.6, MULTIPLY, 8),
}

# Kernels above their bound, without 128-bit accesses or with scalar loads, and their number of instructions for eight
# elements, which must not increase. 0: the kernel does not exist yet. A kernel that meets its bound leaves this table.
NOT_YET_MET = {
}
