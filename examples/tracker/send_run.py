"""Send the metrics of a training to an HTTP server while it runs.

  send_run.py FOLDER URL
"""
import json
import os
import sys
import time
import urllib.request

folder, url = sys.argv[1:]


def send(kind, values):
    body = json.dumps({"kind": kind, "run": os.path.basename(os.path.abspath(folder)), **values}).encode()
    urllib.request.urlopen(urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})).close()


with open(folder + "/job.json") as command:
    send("options", {"options": json.load(command)["options"]})
ended, line = False, ""
with open(folder + "/metrics.jsonl") as metrics:
    while not ended:
        ended = os.path.exists(folder + "/end.json")  # before the last lines are read
        for part in metrics:
            line += part
            if line.endswith("\n"):  # else the rest is not written yet
                send("metrics", json.loads(line))
                line = ""
        time.sleep(0.5)
with open(folder + "/end.json") as end:
    send("end", json.load(end))
