#!/usr/bin/python3 -IS
"""A kubectl for tests, with a cluster of one node behind it that runs containers as processes of this host.

The folder of the (linked) program holds the cluster: calls.jsonl (words and standard input of each call), and a JSON file for each
object. There is no daemon: each call first does what the controllers of a cluster would have done since the last one.

    kubectl evict                 end the running pods as an eviction does: SIGTERM, and the condition DisruptionTarget

A test controls the cluster by files in the folder:

    hold         JSON: status of each pod, which does not start while the file exists
    quota        text: no pod is created while the file exists; an event has the text
    admit        exists: suspended Jobs are started, as by Kueue
    workloads    JSON: reply to `get workloads.kueue.x-k8s.io`
    fault-WHAT   faults of the next calls, one line for each: `none` or one of the list below; WHAT is create-secret, create-job,
                 patch, get, logs, exec, delete-secret or delete

Faults: text: print it as an error and exit with 1, without an effect; lost: die after the effect, without a reply; late: die without
a reply, and create the object before the next call that creates a Job; hang: never reply after the effect; stall: never reply,
without an effect; cut: print half of the output.
"""
import copy
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import uuid

ROOT = os.path.dirname(os.path.abspath(sys.argv[0]))
RUN = 'echo $$ > "$POD/pid"; "$@" > "$POD/log" 2>&1 < /dev/null; echo $? > "$POD/code.tmp"; mv "$POD/code.tmp" "$POD/code"'
NODE = "node-1"
REFUSED = "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?"


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def path(*names):
    return os.path.join(ROOT, *names)


def read(*names):
    try:
        with open(path(*names), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def write(text, *names):
    os.makedirs(os.path.dirname(path(*names)), exist_ok=True)
    with open(path(*names) + ".tmp", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path(*names) + ".tmp", path(*names))


def objects(kind):
    """All objects of a kind, as {name: object}"""
    names = sorted(os.listdir(path(kind))) if os.path.isdir(path(kind)) else []
    return {name: json.loads(read(kind, name)) for name in names if not name.endswith(".tmp")}


def put(kind, item):
    write(json.dumps(item), kind, item["metadata"]["name"])


def remove(kind, name):
    if os.path.exists(path(kind, name)):
        os.unlink(path(kind, name))


class Failure(Exception):
    pass


# ---- controllers ----

def alive(pod):
    """Whether the process of a pod runs"""
    try:
        with open("/proc/%d/stat" % int(read("run", pod, "pid") or 0), encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pod_start(pod):
    """Run the container of a pod"""
    name, spec = pod["metadata"]["name"], pod["spec"]
    container = spec["containers"][0]
    places = {"/dev/termination-log": path("run", name, "message")}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for volume in spec["volumes"]:
        if "secret" in volume:
            secret = objects("secrets").get(volume["secret"]["secretName"])
            if secret is None:
                return False  # the kubelet repeats the mount
            places[mounts[volume["name"]]] = path("run", name, "secret")
            for file, text in secret["stringData"].items():
                write(text, "run", name, "secret", file)
                os.chmod(path("run", name, "secret", file), volume["secret"]["defaultMode"])
        elif volume["name"] == "work" and not os.path.isdir(mounts["work"]):
            os.makedirs(mounts["work"])
    os.makedirs(path("run", name), exist_ok=True)
    words = []
    for word in container["command"]:
        for mount, place in places.items():
            word = place + word[len(mount):] if word.startswith(mount) else word
        words.append(word)
    keep = ("PATH", "HOME", "TMPDIR", "GRADPOOL_DATA", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    variables = {key: os.environ[key] for key in keep if key in os.environ}
    variables.update({variable["name"]: variable["value"] for variable in container["env"]})
    variables.update(POD=path("run", name))
    with subprocess.Popen(["sh", "-c", RUN, "sh"] + words, start_new_session=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables) as process:
        process.returncode = 0  # it outlives this call
        write(str(process.pid), "run", name, "pid")
    return True


def pod_kill(name):
    """Kill the processes that a container left, as the end of its first process does"""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if os.fsencode("POD=" + path("run", name)) in file.read().split(b"\0"):
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


def pod_end(pod):
    """Record the end of a pod"""
    pod_kill(pod["metadata"]["name"])
    name, code = pod["metadata"]["name"], int(read("run", pod["metadata"]["name"], "code") or 137)
    status = pod["status"]
    started = status["containerStatuses"][0]["state"]["running"]["startedAt"]
    status["phase"] = "Failed" if code else "Succeeded"
    status["containerStatuses"][0]["state"] = {"terminated": {
        "exitCode": code, "reason": "OOMKilled" if code == 137 else "Error" if code else "Completed", "startedAt": started,
        "finishedAt": now(), "message": read("run", name, "message")}}


def pod_step(pod):
    """Move one pod on. Return whether it still exists."""
    name, status = pod["metadata"]["name"], pod["status"]
    if status["phase"] == "Pending":
        hold = read("hold")
        if pod["metadata"].get("deletionTimestamp"):
            return False
        if hold:
            pod["status"] = {"phase": "Pending", **json.loads(hold)}
        elif pod_start(pod):
            pod["spec"]["nodeName"] = NODE
            pod["status"] = {"phase": "Running", "containerStatuses": [
                {"name": "gradpool", "started": True, "state": {"running": {"startedAt": now()}}}]}
        else:
            pod["spec"]["nodeName"] = NODE
            pod["status"] = {"phase": "Pending", "containerStatuses": [
                {"name": "gradpool", "state": {"waiting": {"reason": "ContainerCreating"}}}]}
    elif status["phase"] == "Running" and not alive(name):
        pod_end(pod)
    return not (pod["metadata"].get("deletionTimestamp") and pod["status"]["phase"] in ("Succeeded", "Failed"))


def job_step(job):
    """Create the pod of a Job, or record the end of the Job. Return whether the Job still exists."""
    name = job["metadata"]["name"]
    pods = [pod for pod in objects("pods").values() if pod["metadata"]["labels"].get("gradpool/job") == name]
    live = [pod for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]
    if job["metadata"].get("deletionTimestamp"):
        for pod in pods:
            delete("pods", pod)
        return bool(live)
    if os.path.exists(path("admit")):
        job["spec"]["suspend"] = False
    if live or job["status"].get("conditions") or job["spec"].get("suspend"):
        return True
    ended = pods[-1] if pods else None
    disrupted = any(condition["type"] == "DisruptionTarget" for condition in ended["status"].get("conditions", [])) if ended else False
    if ended and ended["status"]["phase"] == "Succeeded":
        job["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    elif ended and not (disrupted and "podFailurePolicy" in job["spec"]):
        job["status"]["conditions"] = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
                                        "message": "Job has reached the specified backoff limit"}]
    elif not os.path.exists(path("quota")):
        for pod in pods:  # the scheduler and the eviction API delete the pods that they end
            remove("pods", pod["metadata"]["name"])
        pod = copy.deepcopy(job["spec"]["template"])
        count = int(read("pods-of-" + name) or 0) + 1
        write(str(count), "pods-of-" + name)
        pod["metadata"].update(name="%s-%05d" % (name, count), creationTimestamp=now(), labels=dict(job["metadata"]["labels"]))
        pod.update(apiVersion="v1", kind="Pod", status={"phase": "Pending"})
        put("pods", pod)
    return True


def reconcile():
    for _ in range(2):
        for name, job in objects("jobs").items():
            if job_step(job):
                put("jobs", job)
            else:
                remove("jobs", name)
        for name, secret in objects("secrets").items():
            owners = [owner["name"] for owner in secret["metadata"].get("ownerReferences", [])]
            if owners and not os.path.exists(path("jobs", owners[0])):
                remove("secrets", name)
        for name, pod in objects("pods").items():
            if pod_step(pod):
                put("pods", pod)
            else:
                remove("pods", name)


def delete(kind, item):
    """Delete an object as the server does: pods end first"""
    name = item["metadata"]["name"]
    if kind == "secrets":
        remove(kind, name)
        return
    item["metadata"].setdefault("deletionTimestamp", now())
    put(kind, item)
    if kind == "pods" and alive(name):
        shell = read("run", name, "pid").strip()
        with open("/proc/%s/task/%s/children" % (shell, shell), encoding="utf-8") as children:
            for child in children.read().split():
                os.kill(int(child), signal.SIGTERM)


# ---- verbs ----

def create(item):
    kind = item["kind"].lower() + "s"
    name = item["metadata"]["name"]
    if os.path.exists(path(kind, name)):
        raise Failure('Error from server (AlreadyExists): error when creating "STDIN": %s "%s" already exists' % (
            "jobs.batch" if kind == "jobs" else kind, name))
    item["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp=now())
    item.setdefault("status", {})
    put(kind, item)
    return item["metadata"]


def chosen(kinds, words):
    """The objects that a label or a name selects"""
    found = []
    label = words[words.index("-l") + 1] if "-l" in words else ""
    for kind in kinds.split(","):
        kind = kind.split(".")[0].rstrip("s") + "s"
        for name, item in objects(kind).items():
            labels = item["metadata"].get("labels", {})
            if label and ("=" in label and labels.get(label.split("=")[0]) == label.split("=")[1] or label in labels):
                found.append((kind, item))
            elif not label and name in words:
                found.append((kind, item))
    return found


def get(words):
    if words[1] == "events":
        items = [{"kind": "Event", "involvedObject": {"kind": "Job", "name": name}, "reason": "FailedCreate",
                  "message": read("quota")} for name in objects("jobs")] if read("quota") else []
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    if words[1] == "workloads.kueue.x-k8s.io":
        if not read("workloads"):
            raise Failure('error: the server doesn\'t have a resource type "workloads"')
        return read("workloads")
    items = [item for _, item in chosen(words[1], words)]
    if "jsonpath={.metadata.uid}" in words:
        if not items:
            raise Failure('Error from server (NotFound): jobs.batch "%s" not found' % words[2])
        return items[0]["metadata"]["uid"]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4)


def logs(words):
    pod = objects("pods").get(words[1])
    if pod is None:
        raise Failure('Error from server (NotFound): pods "%s" not found' % words[1])
    if pod["status"]["phase"] == "Pending":
        raise Failure('Error from server (BadRequest): container "gradpool" in pod "%s" is waiting to start' % words[1])
    limit = [int(word.split("=")[1]) for word in words if word.startswith("--limit-bytes=")]
    with open(path("run", words[1], "log"), "rb") as file:
        return file.read(limit[0] if limit else -1).decode("utf-8", "replace")


def run(words, text):
    """(what, effect): the key of the call for faults, and a function that does it and returns the output"""
    if words[0] == "create":
        item = json.loads(text)
        if "--dry-run=server" in words:
            return "create-" + item["kind"].lower(), lambda: "created\n"
        key = words[words.index("-o") + 1]
        return "create-" + item["kind"].lower(), lambda: (
            create(item)["uid"] if key == "jsonpath={.metadata.uid}" else "secret/%s\n" % create(item)["name"])
    if words[0] == "patch":
        def patch():
            item = objects("secrets")[words[2]]
            item["metadata"].update(json.loads(words[words.index("--patch") + 1])["metadata"])
            put("secrets", item)
            return "patched\n"
        return "patch", patch
    if words[0] == "get":
        return "get", lambda: get(words)
    if words[0] == "logs":
        return "logs", lambda: logs(words)
    if words[0] == "exec":
        program = words[words.index("--") + 1:]
        return "exec", lambda: subprocess.run(program, input=text.encode(), stdout=subprocess.PIPE,
                                              check=True).stdout.decode("utf-8", "surrogateescape")
    if words[0] == "delete":
        return "delete-secret" if words[1] == "secret" else "delete", lambda: "".join(
            delete(kind, item) or "%s deleted\n" % item["metadata"]["name"] for kind, item in chosen(words[1], words))
    if words[0] == "evict":
        def evict():
            for pod in objects("pods").values():
                if pod["status"]["phase"] == "Running":
                    pod["status"].setdefault("conditions", []).append({"type": "DisruptionTarget", "status": "True"})
                    delete("pods", pod)
                    del pod["metadata"]["deletionTimestamp"]
                    put("pods", pod)
            return ""
        return "evict", evict
    raise Failure('error: unknown command "%s" for "kubectl"' % words[0])


def main():
    words = [word for word in sys.argv[1:] if not word.startswith(("--context", "--namespace", "--request-timeout"))]
    text = sys.stdin.read() if "-" in words or "-i" in words else ""
    with open(path("lock"), "w", encoding="utf-8") as lock, open(path("calls.jsonl"), "a", encoding="utf-8") as calls:
        fcntl.flock(lock, fcntl.LOCK_EX)
        calls.write(json.dumps({"words": sys.argv[1:], "input": text}) + "\n")
        calls.flush()
        try:
            what, effect = run(words, text)
            faults = read("fault-" + what).split("\n")
            fault = faults[0] if faults[0] != "none" else ""
            write("\n".join(faults[1:]), "fault-" + what)
            if fault == "stall":
                fcntl.flock(lock, fcntl.LOCK_UN)
                time.sleep(600)
            if fault == "late":
                put("late", json.loads(text))
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "create-job":
                for name, item in objects("late").items():
                    create(item)
                    remove("late", name)
            if fault == "refused":
                fault = REFUSED
            if fault and fault not in ("lost", "hang", "cut"):
                raise Failure(fault)
            reconcile()
            output = effect()
            reconcile()
        except Failure as failure:
            sys.exit(str(failure))
    if fault == "lost":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(600)
    output = output.encode("utf-8", "surrogateescape")
    sys.stdout.buffer.write(output[:len(output) // 2] if fault == "cut" else output)


main()
