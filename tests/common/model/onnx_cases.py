"""onnx_cases.py TOOL docs/onnx.md [--update] -- compare the reader with the operator cases of the onnx package.

A case is tested if docs/onnx.md lists all of its operators. gp_onnx_read() reads the models of these cases, and of the
package's folders pytorch-converted, pytorch-operator and simple. The float64 oracle and the CPU backend compute them:
  passed   |ours - theirs| <= 1e-3 |theirs| + 1e-5 for the expected output of the case (the package's own tolerance is
           1e-3, 1e-7, for float32 arithmetic in any order)
  refused  the error names the node, its operator and the opset, or concerns the whole model
  WRONG    any other result, for example a crash; the test fails
A network has one input and constant weights. The first float32 input with at least two dimensions remains an input, and all
others become initializers. A model that does not end in a Softmax is read as a network of values (mse). If that is impossible
or refused, and for all operators that fold constants, all inputs become initializers, and an input of zeros is added to the
expected output ("with constant inputs").
The test also compares the lists in the document with the results. --update writes the lists. With another version of the
package only WRONG fails the test."""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

TOOL, DOC = sys.argv[1:3]
RTOL, ATOL = 1e-3, 1e-5
DATA = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
FOLDERS = ["pytorch-converted", "pytorch-operator", "simple"]
FOLDED = set("Concat Flatten Identity Neg Reshape Slice Squeeze Transpose Unsqueeze Add Div Mul Sub Sum".split())
START, END = "<!-- cases: written by tests/common/model/onnx_cases.py --update -->", "<!-- end of cases -->"


def our_operators(text):
    table = text[text.index("| operator |"):]
    return set(re.findall(r"`([A-Z]\w+)`", "\n".join(line.split("|")[1] for line in table.split("\n\n")[0].splitlines() if line.startswith("|"))))


def array_of(path):
    proto = TensorProto()
    with open(path, "rb") as f:
        proto.ParseFromString(f.read())
    return numpy_helper.to_array(proto)


def as_array(value):
    """Return a value of a case as an array; a sequence is returned as it is."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def all_cases():
    """(name, model, inputs, outputs)"""
    for case in collect_testcases(None):
        if case.model is not None and case.data_sets:
            yield case.name, case.model, *([as_array(v) for v in values] for values in case.data_sets[0])
    for folder in FOLDERS:
        for path in sorted(glob.glob(os.path.join(DATA, folder, "*", "model.onnx"))):
            at = os.path.dirname(path)
            sets = os.path.join(at, "test_data_set_0")
            try:
                inputs = [array_of(p) for p in sorted(glob.glob(os.path.join(sets, "input_*.pb")))]
                outputs = [array_of(p) for p in sorted(glob.glob(os.path.join(sets, "output_*.pb")))]
            except Exception:  # sequences and optional values: not supported
                continue
            if outputs:
                yield f"{folder}/{os.path.basename(at)}", onnx.load(path), inputs, outputs


def as_network(model, inputs, outputs):
    """Return ((model with one input and one flat output, that input, opset), None), or (None, reason)"""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    if not all(isinstance(i, np.ndarray) for i in [*inputs, *outputs]):
        return None, "a sequence or an optional value is not a tensor"
    given = {i.name for i in graph.initializer}
    ports = [i for i in graph.input if i.name not in given]
    data = next((k for k, i in enumerate(inputs) if i.dtype == np.float32 and 2 <= i.ndim <= 4), None)
    if len(ports) != len(inputs):
        return None, "missing inputs"
    if data is None:
        return None, "no float32 input with two to four dimensions"
    output = outputs[0]
    if output.dtype != np.float32:
        return None, f"the output is {output.dtype}"
    samples = inputs[data].shape[0]
    if output.ndim < 2 or output.shape[0] != samples or output.size == 0 or inputs[data].size == 0:
        return None, "the first axis of the output is not that of the samples"
    for port, array in zip(ports, inputs):
        if port is not ports[data]:
            graph.input.remove(port)
            graph.initializer.append(numpy_helper.from_array(array, port.name))
    del graph.output[1:]
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    del graph.value_info[:]
    return (model, inputs[data], opset), None


def as_constants(model, inputs, outputs):
    """Add the output of the case to an input of zeros; both have shape [1, numbers]. Return as as_network()."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    if not all(isinstance(i, np.ndarray) for i in [*inputs, *outputs]):
        return None, "a sequence or an optional value is not a tensor"
    output = np.asarray(outputs[0])
    given = {i.name for i in graph.initializer}
    ports = [i for i in graph.input if i.name not in given]
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if len(ports) != len(inputs) or output.size == 0 or opset < 7:
        return None, "missing inputs, an empty output, or an opset before 7"
    for port, array in zip(ports, inputs):
        graph.input.remove(port)
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), port.name))
    zeros = np.zeros((1, output.size), np.float32)
    last = graph.output[0].name
    graph.initializer.append(numpy_helper.from_array(np.array([1, -1], np.int64), "gp.shape"))
    graph.node.append(helper.make_node("Cast", [last], ["gp.float"], to=TensorProto.FLOAT))
    graph.node.append(helper.make_node("Reshape", ["gp.float", "gp.shape"], ["gp.flat"]))
    graph.input.append(helper.make_tensor_value_info("gp.zeros", TensorProto.FLOAT, ["N", output.size]))
    graph.node.append(helper.make_node("Add", ["gp.zeros", "gp.flat"], ["gp.sum"]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("gp.sum", TensorProto.FLOAT, ["N", output.size]))
    del graph.value_info[:]
    return (model, zeros, opset), None


def run(model, x, folder):
    path = os.path.join(folder, "case.onnx")
    onnx.save(model, path)
    out = subprocess.run([TOOL, "values", path, str(len(x))], input=np.ascontiguousarray(x).tobytes(), capture_output=True,
                         timeout=120)
    if out.returncode not in (0, 1):
        return None, f"CRASH {out.returncode}: {out.stderr.decode()[-300:]}"
    if out.returncode == 1:
        return None, out.stderr.decode().strip().splitlines()[-1].removeprefix("onnx_tool: ")
    numbers = np.array(out.stdout.split(), dtype=np.float64)
    return numbers.reshape(2, len(x), -1), None  # of the oracle, of the backend


def judge(network, why, output, folder):
    """Return ("passed" | "refused" | "WRONG", reason)"""
    if network is None:
        return "refused", why
    model, x, opset = network
    got, why = run(model, x, folder)
    if got is None:
        names_node = re.match(r"node '.*' \((\w+), opset \d+\): (.*)", why or "")
        if names_node:
            return "refused", f"{names_node[1]}, opset {opset}: {names_node[2]}"
        whole = why and not why.startswith("CRASH") and re.search(r"the (model|input)|^\w+ \(\w+\): |shape", why)
        return ("refused" if whole else "WRONG"), why or "no message"
    wanted = np.asarray(output).reshape(len(x), -1).astype(np.float64)
    if got.shape[1:] != wanted.shape:
        return "WRONG", f"{got.shape[2]} numbers per sample, but the case has {wanted.shape[1]}"
    with np.errstate(all="ignore"):
        over = np.abs(got - wanted) - (RTOL * np.abs(wanted) + ATOL)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    if not (same | (over <= 0)).all():
        return "WRONG", f"differs by up to {np.nanmax(np.abs(got - wanted), axis=(1, 2))} (oracle, backend)"
    return "passed", ""


def judge_both(model, inputs, outputs, folder):
    first = judge(*as_network(model, inputs, outputs), outputs[0], folder)
    if first[0] == "WRONG" or (first[0] == "passed" and not {n.op_type for n in model.graph.node} & FOLDED):
        return first
    second = judge(*as_constants(model, inputs, outputs), outputs[0], folder)
    if second[0] == "WRONG":
        return second[0], "with constant inputs: " + second[1]
    if first[0] == second[0] == "passed":
        return "passed", "both"
    if second[0] == "passed":
        return "passed", "constants"
    return second if ", opset" in second[1] and not (", opset" in first[1] or "needs a layer as input" in second[1]) else first


def document(results):
    lines = [START, "", f"With the cases of onnx {onnx.__version__}: {sum(r == 'passed' for r, _ in results.values())} passed, "
             f"{sum(r == 'refused' for r, _ in results.values())} refused.", "",
             "Passed (*: with constant inputs; +: as a layer and with constant inputs):", ""]
    groups = collections.defaultdict(list)
    for name, (result, why) in results.items():
        if result == "passed":
            folder, _, case = name.rpartition("/")
            groups[folder or "node"].append(case.removeprefix("test_") + {"": "", "constants": "*", "both": "+"}[why])
    for folder in ["node", *FOLDERS]:
        lines += [f"- {folder}: {', '.join(sorted(groups[folder]))}"]
    lines += ["", "Refused, with the reason:", ""]
    reasons = collections.defaultdict(list)
    for name, (result, why) in results.items():
        if result == "refused":
            why = re.sub(r"ONNX type \d+", "another type", re.sub(r"'[\w.]+'", "an input", why))
            reasons[why].append(name.removeprefix("test_").replace("/test_", "/"))
    for why in sorted(reasons):
        lines.append(f"- {why}: {', '.join(sorted(reasons[why]))}")
    return "\n".join([*lines, "", END])


with open(DOC) as f:
    text = f.read()
ours = our_operators(text)
results = {}
with tempfile.TemporaryDirectory() as temporary:
    for name, model, inputs, outputs in all_cases():
        if {n.op_type for n in model.graph.node} <= ours and all(n.domain == "" for n in model.graph.node):
            results[name] = judge_both(model, inputs, outputs, temporary)
for name, (result, why) in sorted(results.items(), key=lambda item: (item[1][0], item[0])):
    print(f"{result:8}{name}{': ' if why else ''}{why}")
wrong = sum(result == "WRONG" for result, _ in results.values())
part = document(results)
before = text[text.index(START):text.index(END) + len(END)] if START in text and END in text else ""
stale = before != part and (f"onnx {onnx.__version__}:" in before or not before)
if "--update" in sys.argv:
    with open(DOC, "w") as f:
        f.write(text.replace(before, part) if before else text + "\n" + part + "\n")
    stale = False
if stale:
    print(f"FAIL {DOC} lists other results; check the difference, then run this script with --update")
print(f"{len(results)} cases, {wrong} wrong")
sys.exit(wrong != 0 or stale)
