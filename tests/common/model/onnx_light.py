"""onnx_light.py TOOL -- run the nine light_*.onnx graphs of the onnx package on the CPU backend.

ConstantOfShape nodes create the weights, so that the files are small. Each graph is read and run twice:
  as it is             with the input and the expected output of the package. All weights and all scores are equal, so this
                       tests the reader, and hardly the computation.
  with random weights  in a second file (external data), on two random images, beside onnxruntime. The logits are scaled to a
                       standard deviation of 1, so that the softmax does not saturate.
Tolerance: |ours - theirs| <= 1e-4 |theirs| + 1e-7 for each of the 1000 scores, which are about 1e-3."""
import glob
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

TOOL = sys.argv[1]
FOLDER = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
NAMES = ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
         "zfnet512"]
SHAPE = (3, 224, 224)
RTOL, ATOL = 1e-4, 1e-7
WEIGHTS_MAX = 40_000_000  # the first matrix of vgg19 has 103 million weights and is not replaced
rng = np.random.default_rng(5)
failures = 0


def ours(path, x):
    out = subprocess.run([TOOL, "infer", path, str(len(x))], input=x.tobytes(), capture_output=True)
    if out.returncode != 0:
        return out.stderr.decode().strip()
    return np.array(out.stdout.split(), dtype=np.float64).reshape(len(x), -1)


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def runtime(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {feed: x[i:i + 1]})[0].reshape(1, -1) for i in range(len(x))]).astype(np.float64)


def report(what, wanted, got, spread=0.0):
    global failures
    if isinstance(got, str):
        failures += 1
        print(f"FAIL {what}: {got}")
        return
    error = np.abs(got - wanted) / (np.abs(wanted) + ATOL / RTOL)
    varies = min(wanted.std(axis=1).min() / wanted.mean(), np.abs(wanted[0] - wanted[-1]).max() / wanted.mean() if spread else 1)
    ok = got.shape == wanted.shape and error.max() <= RTOL and (not spread or varies >= spread)
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what}: largest relative difference {error.max():.1e}, spread of scores {varies:.2g}")


def as_it_is(name):
    path = os.path.join(FOLDER, f"light_{name}.onnx")
    proto = onnx.TensorProto()
    with open(path.replace(".onnx", "_output_0.pb"), "rb") as f:
        proto.ParseFromString(f.read())
    wanted = numpy_helper.to_array(proto).reshape(1, -1)
    if abs(wanted.sum() - 1) > 1e-2:  # densenet121 ends before its softmax
        wanted = softmax(wanted)
    x = np.arange(np.prod(SHAPE)).reshape(1, *SHAPE).astype(np.float32) / np.float32(np.prod(SHAPE))
    report(f"{name}: as it is", wanted, ours(path, x))


def weights(shape, readers):
    if len(shape) > 1:
        return rng.normal(0, np.sqrt((2 if len(shape) == 4 else 1) / np.prod(shape[1:])), shape)
    node, k = readers[0]
    positive = node.op_type == "Unsqueeze" or (node.op_type == "BatchNormalization" and k in (1, 4))
    return rng.uniform(0.5, 1.5, shape) if positive else rng.normal(0, 0.1, shape)


def external(array, name, file):
    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=array.shape,
                              data_location=onnx.TensorProto.EXTERNAL)
    data = array.astype("<f4").tobytes()
    for key, value in (("location", os.path.basename(file.name)), ("offset", file.tell()), ("length", len(data))):
        tensor.external_data.add(key=key, value=str(value))
    file.write(data)
    return tensor


def with_random_weights(name, folder):
    model = onnx.load(os.path.join(FOLDER, f"light_{name}.onnx"))
    graph = model.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    kept = []
    with open(os.path.join(folder, name + ".weights"), "wb") as file:
        for node in graph.node:
            shape = shapes[node.input[0]] if node.op_type == "ConstantOfShape" else None
            if shape is None or np.prod(shape) > WEIGHTS_MAX:
                kept.append(node)
                continue
            readers = [(n, k) for n in graph.node for k, i in enumerate(n.input) if i == node.output[0]]
            graph.initializer.append(external(weights(tuple(shape), readers), node.output[0], file))
    del graph.node[:]
    graph.node.extend(kept)
    model.ir_version = 4  # initializers need not be inputs
    path = os.path.join(folder, name + ".onnx")
    onnx.save(model, path)
    x = rng.normal(0, 1, (2, *SHAPE)).astype(np.float32)
    if graph.node[-1].op_type == "Softmax":
        del graph.node[-1]
    logits = graph.node[-1].output[0]
    graph.output[0].name = logits
    onnx.save(model, path)
    wanted = runtime(path, x)
    graph.node.append(helper.make_node("Mul", [logits, "factor"], ["even"]))
    graph.initializer.append(numpy_helper.from_array(np.float32(1 / wanted.std()), "factor"))
    graph.output[0].name = "even"
    onnx.save(model, path)
    wanted = softmax(wanted * np.float32(1 / wanted.std()))
    report(f"{name}: with random weights in a second file", wanted, ours(path, x), spread=30 * RTOL)
    os.remove(path)
    os.remove(file.name)


missing = [name for name in NAMES if not os.path.exists(os.path.join(FOLDER, f"light_{name}.onnx"))]
if len(missing) == len(NAMES):
    print("SKIP: this onnx package has no light models")
    sys.exit(77)
failures += len(missing)
for name in missing:
    print(f"FAIL {name}: not in this onnx package")
with tempfile.TemporaryDirectory() as temporary:
    for name in NAMES:
        if name not in missing:
            as_it_is(name)
            with_random_weights(name, temporary)
print(f"{failures} failed")
sys.exit(failures != 0)
