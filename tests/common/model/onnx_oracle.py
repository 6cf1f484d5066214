"""onnx_oracle.py TOOL -- compare the writer and the reader of ONNX files with onnx.checker and onnxruntime.

Writer: files from gp_onnx_write() pass onnx.checker, and onnxruntime computes the scores of the float64 oracle.
Reader: gp_onnx_read() reads models that the onnx package wrote, and ours after another program removed the metadata. The
scores that the oracle computes for them are those of onnxruntime."""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

TOOL = sys.argv[1]
SAMPLES = 5
TOLERANCE = 1e-4
rng = np.random.default_rng(3)
failures = 0


def oracle(net, x):
    out = subprocess.run([TOOL, "scores", net, str(len(x))], input=x.tobytes(), capture_output=True)
    if out.returncode != 0:
        return out.stderr.decode().strip()
    return np.array(out.stdout.split(), dtype=np.float64).reshape(len(x), -1)


def runtime(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, x if isinstance(x, dict) else {session.get_inputs()[0].name: x})[0]


def compare(what, wanted, got, softmax=False):
    global failures
    if isinstance(wanted, str):
        print(f"FAIL {what}: {wanted}")
        failures += 1
        return
    if softmax:
        got = np.exp(got - got.max(axis=1, keepdims=True))
        got /= got.sum(axis=1, keepdims=True)
    error = np.abs(wanted - got).max() if wanted.shape == got.shape else np.inf
    spread = wanted.std(axis=0).max()  # scores that do not depend on the sample would prove nothing
    ok = error <= TOLERANCE and spread > 1e-3
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what}: largest difference {error:.2e}, spread of scores {spread:.2g}")


def check_ours(net, shape, folder, opset=13):
    path = os.path.join(folder, net + ".onnx")
    subprocess.run([TOOL, "write", net, path], check=True)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8 and model.opset_import[0].version == opset
    assert [i.name for i in model.graph.input] == ["input"] and [o.name for o in model.graph.output] == ["scores"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    x = rng.uniform(0, 255 if net == "lenet" else 2, (SAMPLES, *shape)).astype(np.float32)
    scores = runtime(path, x)
    compare(f"{net}: oracle against onnxruntime on our file", oracle(net, x), scores)
    compare(f"{net}: read back", oracle(path, x), scores)
    del model.metadata_props[:]
    onnx.save(model, path)
    compare(f"{net}: read back without metadata", oracle(path, x), scores)
    for version in (v for v in (17, 21) if v > opset):
        onnx.save(onnx.version_converter.convert_version(model, version), path)
        compare(f"{net}: converted to opset {version}", oracle(path, x), scores)


def check_external(net, shape, folder):
    """Check a model with its weights in a second file"""
    path = os.path.join(folder, "apart.onnx")
    subprocess.run([TOOL, "save", net, path], check=True)
    onnx.checker.check_model(path, full_check=True)
    weights = [t for t in onnx.load(path, load_external_data=False).graph.initializer if t.external_data]
    assert weights and all(e.value == "apart.onnx.data" for t in weights for e in t.external_data if e.key == "location")
    assert os.path.getsize(path) < os.path.getsize(path + ".data")
    x = rng.uniform(0, 255, (SAMPLES, *shape)).astype(np.float32)
    compare(f"{net}: external data in onnxruntime", oracle(net, x), runtime(path, x))
    compare(f"{net}: external data read back", oracle(path, x), runtime(path, x))


def backend(net, x):
    """Return the scores of the CPU backend for all outputs, or an error message"""
    out = subprocess.run([TOOL, "infer", net, str(len(x))], input=x.tobytes(), capture_output=True)
    if out.returncode != 0:
        return out.stderr.decode().strip()
    return np.array(out.stdout.split(), dtype=np.float64).reshape(len(x), -1)


def check_losses(net, shape, folder, outputs=("scores",)):
    """Compare outputs that are not classes: the backend returns the outputs of the file one after the other"""
    path = os.path.join(folder, net + ".onnx")
    subprocess.run([TOOL, "write", net, path], check=True)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [o.name for o in model.graph.output] == list(outputs)
    x = rng.uniform(0, 2, (SAMPLES, *shape)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    scores = np.concatenate([y.reshape(SAMPLES, -1) for y in session.run(None, {"input": x})], axis=1)
    compare(f"{net}: backend against onnxruntime on our file", backend(net, x), scores)
    compare(f"{net}: read back", backend(path, x), scores)


def tensor(name, *shape):
    return numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name)


def check_theirs(name, nodes, initializers, shape, folder, opset=13, softmax=True, batch="N"):
    """shape: of the input x, or a dictionary of the shapes of several inputs, which the reader packs in that order"""
    shapes = shape if isinstance(shape, dict) else {"x": shape}
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, *s]) for n, s in shapes.items()],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, None])], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    path = os.path.join(folder, name + ".onnx")
    onnx.save(model, path)
    feeds = {n: rng.normal(0, 1, (SAMPLES, *s)).astype(np.float32) for n, s in shapes.items()}
    packed = np.concatenate([f.reshape(SAMPLES, -1) for f in feeds.values()], axis=1)
    compare(f"{name} of the onnx package", oracle(path, packed), runtime(path, feeds), softmax)


def constant(name, array):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def foreign(folder):
    node = helper.make_node
    check_theirs("gemm_untransposed", [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 0, 1, 2], strides=[2, 1]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[1, 2], auto_pad="VALID"),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "g", "h"], ["y"], transB=0),
    ], [tensor("w", 4, 2, 3, 3), tensor("b", 4), tensor("g", 4 * 3 * 4, 6), tensor("h", 6)], (2, 8, 8), folder)
    check_theirs("matmul_add", [
        node("Sub", ["x", "mean"], ["s"]), node("Div", ["s", "deviation"], ["d"]),
        constant("shape", np.array([-1, 75], dtype=np.int64)),
        node("Reshape", ["d", "shape"], ["f"]),
        node("MatMul", ["f", "m"], ["mm"]), node("Add", ["bias", "mm"], ["a"]),
        node("Relu", ["a"], ["r"]),
        constant("ratio", np.array(0.25, dtype=np.float32)),
        node("Dropout", ["r", "ratio"], ["dr"]),
        node("MatMul", ["dr", "m2"], ["logits"]), node("Softmax", ["logits"], ["y"]),
    ], [tensor("mean", 3, 1, 1), numpy_helper.from_array(np.array([[[2]], [[3]], [[.5]]], np.float32), "deviation"),
        tensor("m", 75, 9), tensor("bias", 9), tensor("m2", 9, 4)], (3, 5, 5), folder, softmax=False)
    check_theirs("residual_opset9", [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=2), node("Add", ["c", "x"], ["a"]),
        node("Identity", ["a"], ["i"]),
        node("AveragePool", ["i"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        node("Dropout", ["p"], ["d"], ratio=0.4), node("Flatten", ["d"], ["f"]),
        node("MatMul", ["f", "g"], ["y"]),
    ], [tensor("w", 4, 2, 3, 3), tensor("g", 4 * 16, 3)], (4, 4, 4), folder, opset=9)


    check_theirs("auto_pad_and_ceil", [
        node("Conv", ["x", "w"], ["c"], auto_pad="SAME_LOWER", strides=[2, 2]),
        node("BatchNormalization", ["c", "scale", "offset", "mean", "variance"], ["n"], epsilon=1e-2, momentum=.7),
        node("Clip", ["n"], ["c6"], min=0.0, max=1.5),
        node("AveragePool", ["c6"], ["a"], kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
        node("LeakyRelu", ["a"], ["l"], alpha=0.3),
        node("MaxPool", ["l"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("GlobalAveragePool", ["p"], ["g"]), node("Flatten", ["g"], ["f"]), node("MatMul", ["f", "m"], ["y"]),
    ], [tensor("w", 6, 2, 3, 3), tensor("scale", 6), tensor("offset", 6), tensor("mean", 6),
        numpy_helper.from_array(rng.uniform(.5, 2, 6).astype(np.float32), "variance"), tensor("m", 6, 4)],
        (2, 15, 13), folder, opset=10)
    check_theirs("shapes_opset9", [
        node("Conv", ["x", "w"], ["c"]), node("Slice", ["c"], ["s"], starts=[1, -5], ends=[2**31 - 1, -1], axes=[1, 3]),
        node("Pad", ["s"], ["p"], mode="constant", pads=[0, 0, 1, 0, 0, 0, 0, 2]),
        node("Transpose", ["p"], ["t"], perm=[0, 3, 1, 2]), node("Relu", ["t"], ["r"]),
        node("Concat", ["t", "r"], ["k"], axis=-3), constant("to", np.array([0, 4, 3, -1], dtype=np.int64)),
        node("Reshape", ["k", "to"], ["q"]), node("GlobalAveragePool", ["q"], ["g"]), node("Mul", ["g", "q"], ["m"]),
        node("Flatten", ["m"], ["f"]), node("MatMul", ["f", "h"], ["y"]),
    ], [tensor("w", 4, 2, 2, 2), tensor("h", 288, 4)], (2, 8, 8), folder, opset=9)
    check_theirs("softmax_over_height_of_one_channel", [
        node("Conv", ["x", "w"], ["c"]), node("Softmax", ["c"], ["s"], axis=2), node("Flatten", ["s"], ["f"]),
        node("MatMul", ["f", "m"], ["y"]),
    ], [tensor("w", 1, 2, 2, 2), tensor("m", 16, 3)], (2, 5, 5), folder)
    check_theirs("softmax_then_flatten", [
        node("Conv", ["x", "w"], ["c"]), node("GlobalAveragePool", ["c"], ["g"]), node("Softmax", ["g"], ["s"], axis=1),
        node("Flatten", ["s"], ["y"]),
    ], [tensor("w", 4, 2, 2, 2)], (2, 5, 5), folder, softmax=False)
    for name, ends in (("sigmoid_end", ["Sigmoid"]), ("hard_sigmoid_end", ["HardSigmoid"]),
                       ("softmax_of_sigmoid", ["Sigmoid", "Softmax"]), ("softmax_twice", ["Softmax", "Softmax"])):
        names = ["l", *(f"e{i}" for i in range(1, len(ends))), "y"]
        check_theirs(name, [node("Flatten", ["x"], ["f"]), node("MatMul", ["f", "m"], ["l"]),
                            *(node(kind, [names[i]], [names[i + 1]]) for i, kind in enumerate(ends))],
                     [tensor("m", 6, 4)], (6,), folder, softmax=False)
    check_theirs("upsample_opset9", [
        node("ConvTranspose", ["x", "w", "b"], ["c"], strides=[2, 3], output_padding=[1, 2], group=2),
        constant("twice", np.array([1, 1, 2, 3], dtype=np.float32)), node("Upsample", ["c", "twice"], ["u"], mode="nearest"),
        node("GlobalAveragePool", ["u"], ["g"]), node("Flatten", ["g"], ["f"]), node("MatMul", ["f", "m"], ["y"]),
    ], [tensor("w", 4, 3, 2, 2), tensor("b", 6), tensor("m", 6, 4)], (4, 3, 4), folder, opset=9)
    check_theirs("resize_to_sizes", [
        node("Conv", ["x", "w"], ["c"]), constant("to", np.array([5, 4, 9, 4], dtype=np.int64)),
        node("Resize", ["c", "", "", "to"], ["r"], mode="linear"), node("GlobalMaxPool", ["r"], ["g"]),
        node("Flatten", ["g"], ["f"]), node("MatMul", ["f", "m"], ["y"]),
    ], [tensor("w", 4, 2, 2, 2), tensor("m", 4, 4)], (2, 6, 7), folder, opset=13)
    check_theirs("convnext_block", [
        node("Conv", ["x", "w"], ["c"]), node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["t", "scale", "offset"], ["n"], axis=-1, epsilon=1e-6),
        node("MatMul", ["n", "up"], ["u"]), node("Add", ["u", "upb"], ["ub"]), node("Gelu", ["ub"], ["g"]),
        node("MatMul", ["g", "down"], ["d"]), node("Add", ["downb", "d"], ["db"]),
        node("Transpose", ["db"], ["b"], perm=[0, 3, 1, 2]), node("Mul", ["gamma", "b"], ["s"]),
        node("Add", ["s", "c"], ["a"]), node("Transpose", ["a"], ["l"], perm=[0, 2, 3, 1]),
        node("Mul", ["l", "l"], ["q"]), node("Add", ["q", "l"], ["k"]), node("Gelu", ["k"], ["h"], approximate="tanh"),
        node("Flatten", ["h"], ["f"]), node("MatMul", ["f", "m"], ["y"]),
    ], [tensor("w", 4, 2, 2, 2), tensor("scale", 4), tensor("offset", 4), tensor("up", 4, 7), tensor("upb", 7),
        tensor("down", 7, 4), tensor("downb", 4), tensor("gamma", 4, 1, 1), tensor("m", 4 * 5 * 4, 3)],
        (2, 6, 5), folder, opset=20)
    check_theirs("tokens", [
        node("LayerNormalization", ["x", "scale", "offset"], ["n"]), node("MatMul", ["n", "a"], ["p"]),
        node("Relu", ["p"], ["r"]), node("MatMul", ["r", "b"], ["q"]), node("Add", ["q", "x"], ["s"]),
        node("Flatten", ["s"], ["f"]), node("MatMul", ["f", "m"], ["y"]),
    ], [tensor("scale", 6), tensor("offset", 6), tensor("a", 6, 8), tensor("b", 8, 6), tensor("m", 30, 4)],
        (5, 6), folder, opset=17)
    whole = lambda name, array: numpy_helper.from_array(np.array(array, dtype=np.int64), name)
    for batch in ("N", SAMPLES):  # for a fixed batch the exporter writes the indices
        rows = [node("Shape", ["x"], ["n1"], start=0, end=1), node("Squeeze", ["n1"], ["n"]), node("Range", ["zero", "n", "one"], ["r"]),
                node("Mul", ["four", "r"], ["r4"]), node("Unsqueeze", ["r4", "axes"], ["u"]), node("Add", ["u", "columns"], ["i"])]
        check_theirs(f"gather_of_{batch}_samples", [
            node("Conv", ["x", "w"], ["c"]), node("ReduceMean", ["c"], ["m"], axes=[-1, -2]), node("Reshape", ["m", "flat"], ["f"]),
            *(rows if batch == "N" else []), node("Gather", ["f", "i"], ["g"]), node("Relu", ["g"], ["k"]), node("Flatten", ["k"], ["l"]),
            node("MatMul", ["l", "h"], ["y"]),
        ], [tensor("w", 4, 2, 2, 2), tensor("h", 4, 3), whole("flat", [-1]), whole("zero", 0), whole("one", 1), whole("four", 4),
            whole("axes", [1, 2, 3]), whole("columns", np.arange(4).reshape(1, 4, 1, 1)),
            *([] if batch == "N" else [whole("i", np.arange(SAMPLES * 4).reshape(SAMPLES, 4, 1, 1))])],
            (2, 5, 4), folder, opset=15, batch=batch)
    third = [[node("Mul", ["c", "e1"], ["p"]), node("Mul", ["p", "half"], ["g"])],
             [node("Mul", ["half", "e1"], ["p"]), node("Mul", ["c", "p"], ["g"])],
             [node("Mul", ["c", "half"], ["p"]), node("Mul", ["e1", "p"], ["g"])]]
    for order, (one, two) in enumerate(third):
        by = node("Mul", ["c", "root"], ["d"]) if order == 2 else node("Div", ["c", "root"], ["d"])
        check_theirs(f"gelu_by_erf_{order}", [
            node("MatMul", ["x", "w"], ["c"]), constant("root", np.array(.5 ** .5 if order == 2 else 2 ** .5, np.float32)), by,
            node("Erf", ["d"], ["e"]), constant("one", np.array(1, np.float32)), node("Add", ["e", "one"], ["e1"]),
            constant("half", np.array([.5], np.float32)), one, two, node("MatMul", ["g", "m"], ["y"]),
        ], [tensor("w", 6, 8), tensor("m", 8, 4)], (6,), folder, opset=13)
    for square in ([node("Pow", ["s", "two"], ["q"])], [node("Mul", ["s", "s"], ["q"])]):
        check_theirs("layer_norm_by_" + square[0].op_type, [
            node("Conv", ["x", "w"], ["c"]), node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]), node("ReduceMean", ["t"], ["m1"], axes=[-1]),
            node("Sub", ["t", "m1"], ["s"]), constant("two", np.array(2, np.float32)), *square, node("ReduceMean", ["q"], ["m2"], axes=[-1]),
            constant("epsilon", np.array(1e-2, np.float32)), node("Add", ["m2", "epsilon"], ["v"]), node("Sqrt", ["v"], ["r"]),
            node("Div", ["s", "r"], ["d"]), node("Mul", ["d", "scale"], ["k"]), node("Add", ["k", "offset"], ["n"]),
            node("Flatten", ["n"], ["f"]), node("MatMul", ["f", "m"], ["y"]),
        ], [tensor("w", 4, 2, 2, 2), tensor("scale", 4), tensor("offset", 4), tensor("m", 4 * 5 * 4, 3)], (2, 6, 5), folder, opset=13)
    check_theirs("hard_gates", [
        node("Conv", ["x", "w"], ["c"]), node("HardSwish", ["c"], ["h"]), node("GlobalAveragePool", ["h"], ["p"]),
        node("Conv", ["p", "v"], ["s"]), node("HardSigmoid", ["s"], ["z"]), node("Mul", ["z", "h"], ["k"]),
        node("HardSigmoid", ["k"], ["j"], alpha=1 / 6), node("Flatten", ["j"], ["f"]), node("MatMul", ["f", "m"], ["y"]),
    ], [numpy_helper.from_array(rng.normal(0, 3, (4, 2, 2, 2)).astype(np.float32), "w"), tensor("v", 4, 4, 1, 1), tensor("m", 80, 4)],
        (2, 6, 5), folder, opset=14)
    check_theirs("three_inputs", [
        node("Conv", ["image", "w"], ["c"]), node("Relu", ["c"], ["r"]), node("GlobalAveragePool", ["r"], ["g"]),
        node("Flatten", ["g"], ["f"]), node("GlobalMaxPool", ["signal"], ["s"]), node("Flatten", ["s"], ["t"]),
        node("Concat", ["f", "place", "t"], ["k"], axis=1), node("MatMul", ["k", "m"], ["y"]),
    ], [tensor("w", 4, 2, 2, 2), tensor("m", 4 + 3 + 2, 4)], {"image": (2, 6, 7), "place": (3,), "signal": (2, 5)}, folder)
    check_theirs("clip_by_inputs", [
        node("Conv", ["x", "w"], ["c"], group=4, auto_pad="SAME_UPPER"),
        node("Clip", ["c", "", "high"], ["k"]), node("AveragePool", ["k"], ["a"], kernel_shape=[2, 2], dilations=[2, 1]),
        node("Tanh", ["a"], ["t"]), node("Sigmoid", ["t"], ["s"]), node("GlobalMaxPool", ["s"], ["g"]),
        node("Flatten", ["g"], ["f"]), node("MatMul", ["f", "m"], ["y"]),
    ], [tensor("w", 4, 1, 2, 2), numpy_helper.from_array(np.array(.3, np.float32), "high"), tensor("m", 4, 3)],
        (4, 6, 7), folder, opset=19)


with tempfile.TemporaryDirectory() as temporary:
    check_ours("lenet", (1, 28, 28), temporary)
    check_external("lenet", (1, 28, 28), temporary)
    check_ours("mixed", (4, 13, 11), temporary)
    check_ours("residual", (3, 14, 11), temporary)
    check_ours("branches", (2, 10, 9), temporary)
    check_ours("upward", (2, 9, 11), temporary)
    check_ours("norms", (2, 9, 8), temporary, opset=21)
    check_ours("gates", (2, 6, 5), temporary, opset=20)
    for net in ("pixels", "dice", "values", "robust"):
        check_losses(net, (3, 5, 6), temporary)
    check_losses("ends", (3, 5, 6), temporary, ("classes", "pixels", "values", "number"))
    check_losses("independent", (3, 5, 6), temporary, ("classes", "values"))
    foreign(temporary)
print(f"{failures} failed")
sys.exit(failures != 0)
