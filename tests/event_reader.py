"""Read event files as TensorBoard does: in this process, and by a server. Without TensorBoard, the importing test is skipped."""

import contextlib
import json
import subprocess
import sys
import urllib.request

try:
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
except ImportError as error:
    print(f"skipped: no TensorBoard: {error}")
    sys.exit(77)


def read(folder):
    events = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def hparams_of(events, tag):
    return plugin_data_pb2.HParamsPluginData.FromString(events.SummaryMetadata(tag).plugin_data.content)


def fetch(url, body=None):
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"} if body else {})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.loads(reply.read())


@contextlib.contextmanager
def running_server(folder):
    """Run a server for a folder. The value is the URL of its data."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--port", "0", "--load_fast", "false"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in server.stdout:
            if " at http://" in line:
                port = int(line.split(" at http://")[1].split("/")[0].rsplit(":", 1)[1])
                break
        else:
            raise RuntimeError("the server did not start")
        yield f"http://127.0.0.1:{port}/data"
    finally:
        server.kill()
        server.wait()
