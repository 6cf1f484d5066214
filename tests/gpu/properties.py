#!/usr/bin/env python3
"""tests/gpu/properties.py LIBCUDNN OUT [FILE]: write the properties that cuDNN reads from device 0 to OUT, as JSON, and print the
differences from tests/gpu/h200.json, for which test_cuda_plans and predict.py choose engines without a device.

FILE: read these properties instead of those of device 0, without a device. Exit code 1: cuDNN gives no properties."""
import ctypes
import json
import os
import sys

DESCRIPTOR, DEVICE_ID, JSON = 38, 2700, 2702  # CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR and its attributes (cudnn_graph.h, 9)
INT32, CHAR = 23, 24
ROOM = 1 << 16


def properties(cudnn, text):
    """The properties as a dictionary: of `text`, or of device 0 if it is None."""
    def call(function, *arguments):
        status = getattr(cudnn, function)(*arguments)
        if status != 0:
            sys.exit(f"{function}: cuDNN status {status}")

    descriptor, count, out = ctypes.c_void_p(), ctypes.c_int64(), ctypes.create_string_buffer(ROOM)
    call("cudnnBackendCreateDescriptor", DESCRIPTOR, ctypes.byref(descriptor))
    if text is None:
        call("cudnnBackendSetAttribute", descriptor, DEVICE_ID, INT32, ctypes.c_int64(1), ctypes.byref(ctypes.c_int32(0)))
    else:
        call("cudnnBackendSetAttribute", descriptor, JSON, CHAR, ctypes.c_int64(len(text)), text)
    call("cudnnBackendFinalize", descriptor)
    call("cudnnBackendGetAttribute", descriptor, JSON, CHAR, ctypes.c_int64(ROOM - 1), ctypes.byref(count), out)
    call("cudnnBackendDestroyDescriptor", descriptor)
    return json.loads(out.value[:count.value])


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    expected = json.load(open(os.path.join(os.path.dirname(os.path.realpath(__file__)), "h200.json")))
    found = properties(ctypes.CDLL(sys.argv[1]), open(sys.argv[3], "rb").read().strip() if len(sys.argv) == 4 else None)
    with open(sys.argv[2], "w") as file:
        json.dump(found, file)
    different = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
    for name in different:
        print(f"{name}: {found.get(name)}, in h200.json {expected.get(name)}")
    print(f"{len(found)} properties, {len(different)} of them differ from h200.json")


main()
