#!/usr/bin/python3 -IS
"""A batch engine for tests that runs jobs as processes of this host and injects faults.

    spool.py SPOOL launch NAME SCRIPT    queue a job and print its id
    spool.py SPOOL list                  print lines ID NAME STATE [REASON]
    spool.py SPOOL cancel ID             end a job: SIGTERM to its processes, SIGKILL after 30 s

There is no daemon: each call starts queued jobs while slots are free. A call may be killed at any time. Files in SPOOL control
the engine:

    slots            number of jobs that run at the same time [4]
    hold             exists: no job starts
    fault-COMMAND    faults of the next calls of a command, one line for each call
    accept           exists: launches with the fault `late` are accepted

Faults: fail (exit with 1 and change nothing), lost (accept, then die without a reply), hang (accept, then never reply), late
(reply nothing; a background process accepts the job when `accept` exists), garbage (print text that is not an id or a listing),
cut (print half of the output), flood (print without end), ignore (cancel: reply, and change nothing).
`forget` in SPOOL: ended jobs are not listed.
"""
import fcntl
import os
import signal
import subprocess
import sys
import time

RUN = 'echo $$ > "$2/pid.tmp"; mv "$2/pid.tmp" "$2/pid"; sh "$1" > "$2/output" 2>&1 < /dev/null; ' \
    'echo $? > "$2/code.tmp"; mv "$2/code.tmp" "$2/code"'
START_SECONDS = 10  # from the start of a job to its pid


class Spool:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(os.path.join(folder, "jobs"), exist_ok=True)
        self.lock = open(os.path.join(folder, "lock"), "w", encoding="utf-8")
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def read(self, *names):
        try:
            with open(self.path(*names), encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def write(self, text, *names):
        with open(self.path(*names), "w", encoding="utf-8") as file:
            file.write(text + "\n")

    def fault(self, command):
        """The fault of this call, or an empty text"""
        kinds = self.read("fault-" + command).split("\n")
        self.write("\n".join(kinds[1:]), "fault-" + command)
        return kinds[0]

    def jobs(self):
        return sorted(filter(str.isdigit, os.listdir(self.path("jobs"))), key=int)

    def state(self, job):
        """(state, reason) of a job"""
        if self.read("jobs", job, "code"):
            return "ended", "exit code " + self.read("jobs", job, "code")
        pid = self.read("jobs", job, "pid")
        canceled = os.path.exists(self.path("jobs", job, "canceled"))
        started = self.path("jobs", job, "started")
        if not pid and not os.path.exists(started):
            return ("ended", "canceled") if canceled else ("queued", "all slots are busy")
        if not pid:
            return ("running", "starts") if time.time() < os.path.getmtime(started) + START_SECONDS else ("ended", "killed")
        try:
            with open("/proc/%s/stat" % pid, encoding="utf-8") as file:
                if file.read().rsplit(")", 1)[1].split()[0] != "Z":
                    return "running", ""
        except FileNotFoundError:
            pass
        code = self.read("jobs", job, "code")  # written since
        return "ended", "canceled" if canceled else "exit code " + code if code else "killed"

    def end_processes(self):
        """Kill the processes that ended jobs left, as engines with control groups do"""
        ended = {os.fsencode("SPOOL_JOB=" + self.path("jobs", job)): job for job in self.jobs()
                 if not os.path.exists(self.path("jobs", job, "over")) and self.state(job)[0] == "ended"}
        for pid in filter(str.isdigit, os.listdir("/proc") if ended else []):
            try:
                with open("/proc/%s/environ" % pid, "rb") as file:
                    if ended.keys() & set(file.read().split(b"\0")):
                        os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
        for job in ended.values():
            self.write("", "jobs", job, "over")

    def start_queued(self):
        busy = sum(self.state(job)[0] == "running" for job in self.jobs())
        for job in self.jobs():
            if self.state(job)[0] != "queued" or os.path.exists(self.path("hold")) or busy >= int(self.read("slots") or 4):
                continue
            os.mkdir(self.path("jobs", job, "started"))
            words = ["sh", "-c", RUN, "sh", self.read("jobs", job, "script"), self.path("jobs", job)]
            with subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, env={**os.environ, "SPOOL_JOB": self.path("jobs", job)}) as process:
                process.returncode = 0  # do not wait: the job outlives this call
            busy += 1

    def accept(self, name, script):
        job = str(int((self.jobs() or ["100"])[-1]) + 1)
        new = self.path("jobs", ".new-%d" % os.getpid())
        os.makedirs(new)
        self.write(name, new, "name")
        self.write(script, new, "script")
        os.rename(new, self.path("jobs", job))
        return job

    def cancel(self, job):
        if not os.path.isdir(self.path("jobs", job)):
            sys.exit("no such job: " + job)
        self.write("", "jobs", job, "canceled")
        while self.state(job) == ("running", "starts"):
            time.sleep(0.01)
        if self.state(job)[0] == "running":
            pid = int(self.read("jobs", job, "pid"))
            try:
                os.killpg(pid, signal.SIGTERM)
            except ProcessLookupError:
                return
            end = "for i in $(seq 300); do [ -e /proc/%d ] || exit; sleep 0.1; done; kill -9 -%d" % (pid, pid)
            subprocess.Popen(["sh", "-c", end], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)

    def listing(self):
        lines = ["1 other-program running of another program"]
        for job in self.jobs():
            state, reason = self.state(job)
            if state != "ended" or not os.path.exists(self.path("forget")):
                lines.append(" ".join([job, self.read("jobs", job, "name"), state, reason]).strip())
        return "".join(line + "\n" for line in lines)


def late(folder, name, script):
    """Accept a job in a background process when `accept` exists, or give up after 5 minutes"""
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        for _ in range(6000):
            if os.path.exists(os.path.join(folder, "accept")):
                spool = Spool(folder)
                spool.accept(name, script)
                spool.start_queued()
                break
            time.sleep(0.05)
        os._exit(0)


def main():
    folder, command, words = sys.argv[1], sys.argv[2], sys.argv[3:]
    spool = Spool(folder)
    kind = spool.fault(command)
    if kind == "fail":
        sys.exit("the engine is down")
    output = ""
    if command == "launch" and kind == "late":
        late(folder, *words)
    elif command == "launch":
        output = spool.accept(*words) + "\n"
    elif command == "cancel" and kind != "ignore":
        spool.cancel(*words)
    spool.end_processes()
    spool.start_queued()
    if command == "list":
        output = spool.listing()
    fcntl.flock(spool.lock, fcntl.LOCK_UN)
    if kind in ("lost", "late"):
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(600)
    if kind == "garbage":
        output = "Job <101> is submitted to queue <normal>.\n"
    while kind == "flood":
        print("x" * 1000)
    sys.stdout.write(output[:len(output) // 2] if kind == "cut" else output)


main()
