#!/usr/bin/env python3
"""An S3 service for tests: moto's server behind a proxy that checks each signature and injects faults on command.

    s3.py        print "ready PORT", then read commands from standard input, one per line, and reply "ok [...]" to each

    bucket NAME                      create a bucket
    upload BUCKET PREFIX DIRECTORY   upload every file in DIRECTORY as PREFIX/PATH
    put BUCKET KEY TEXT              store one object; KEY and TEXT are percent-encoded
    many BUCKET PREFIX COUNT BYTES   store COUNT objects PREFIX/NNNNNN.jpg
    delete BUCKET KEY                delete one object
    keys ID SECRET [TOKEN]           set the only valid credentials
    region NAME                      set the region of the buckets
    fault COUNT KIND [ARGUMENT]      inject a fault into the next COUNT requests; see Proxy.serve()
    skip COUNT                       let COUNT requests pass before the fault
    delay MS                         delay each reply
    remember                         cache replies, because moto is slow
    requests                         print the number of requests since the last call, and of those for objects
    dump FILE                        append all requests and replies to a file, headers and bodies

The signature check follows AWS's description of Signature Version 4 and is independent of libcurl.
Exits with 77 if moto is not installed, and at the end of standard input.
"""
import datetime
import hashlib
import hmac
import http.client
import http.server
import logging
import os
import socket
import sys
import threading
import time
import urllib.parse

try:
    import boto3
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer
except ImportError as error:
    print(f"SKIP: moto and boto3 are not installed for this Python: {error}", flush=True)
    sys.exit(77)

ERROR = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{code}</Code><Message>{message}</Message>{more}<RequestId>4442587FB7D0A2F9</RequestId></Error>"""

# kind: (status, code, message, more)
ANSWERS = {
    "503": (503, "SlowDown", "Please reduce your request rate.", ""),
    "500": (500, "InternalError", "We encountered an internal error.", ""),
    "403": (403, "AccessDenied", "Access Denied", ""),
    "404": (404, "NoSuchKey", "The specified key does not exist.", ""),
    "expired": (400, "ExpiredToken", "The provided token has expired.", ""),
    "skew": (403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.", ""),
}


class State:
    lock = threading.Lock()
    id, secret, token = "AKIDTEST", "secret-for-tests", ""
    region = "us-east-1"
    faults, skipped = [], 0
    delay = 0.0
    requests = objects = 0
    dump = None
    remembered = None
    backend = 0


def sign_key(secret, date, region):
    key = ("AWS4" + secret).encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def signature_problem(handler):
    """Return None, or (status, code, message) for an invalid signature."""
    authorization = handler.headers.get("Authorization", "")
    if not authorization:
        return (403, "AccessDenied", "Access Denied: not signed")
    if not authorization.startswith("AWS4-HMAC-SHA256 "):
        return (400, "InvalidRequest", "unknown algorithm")
    parts = dict(part.strip().split("=", 1) for part in authorization[17:].split(","))
    key_id, date, region, service, _ = parts["Credential"].split("/")
    if key_id != State.id:
        return (403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
    if State.token and handler.headers.get("x-amz-security-token") != State.token:
        return (403, "InvalidToken", "The provided token is malformed or otherwise invalid.")
    if region != State.region or service != "s3":
        return (400, "AuthorizationHeaderMalformed", f"the region '{region}' is wrong; expecting '{State.region}'")
    names = parts["SignedHeaders"].split(";")
    needed = {"host", "x-amz-date"} | ({"x-amz-security-token"} if State.token else set())
    if not needed <= set(names) or names != sorted(names):
        return (403, "SignatureDoesNotMatch", f"these headers are signed: {names}")
    path, _, query = handler.path.partition("?")
    pairs = [pair.partition("=")[::2] for pair in query.split("&")] if query else []
    for text in (path, *(text for pair in pairs for text in pair)):
        if urllib.parse.quote(urllib.parse.unquote(text), safe="/-_.~" if text is path else "-_.~") != text:
            return (403, "SignatureDoesNotMatch", f"not encoded as it is signed: {text}")
    canonical = "\n".join([
        handler.command, path, "&".join(f"{name}={value}" for name, value in sorted(pairs)),
        *(f"{name}:{' '.join(handler.headers[name].split())}" for name in names), "", parts["SignedHeaders"],
        handler.headers.get("x-amz-content-sha256", hashlib.sha256(b"").hexdigest())])
    stamp = handler.headers["x-amz-date"]
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, f"{date}/{region}/s3/aws4_request",
                      hashlib.sha256(canonical.encode()).hexdigest()])
    wanted = hmac.new(sign_key(State.secret, date, region), text.encode(), hashlib.sha256).hexdigest()
    if wanted != parts["Signature"]:
        return (403, "SignatureDoesNotMatch", "The request signature we calculated does not match.")
    when = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    if abs((datetime.datetime.now(datetime.timezone.utc) - when).total_seconds()) > 900:
        return (403, "RequestTimeTooSkewed", "The difference is too large.")
    return None


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def record(self, data):
        if State.dump:
            with State.lock, open(State.dump, "ab") as file:
                file.write(data)

    def answer(self, status, headers, body, announced=None):
        head = f"HTTP/1.1 {status} Answer\r\nDate: {self.date_time_string()}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers)
        head += f"Content-Length: {len(body) if announced is None else announced}\r\n\r\n"
        self.record(head.encode() + body)
        self.wfile.write(head.encode())
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_error(self, status, code, message, more="", headers=()):
        body = ERROR.format(code=code, message=message, more=more).encode()
        self.answer(status, [("Content-Type", "application/xml"), *headers], body)

    def fault_next(self):
        with State.lock:
            State.requests += 1
            State.objects += "list-type" not in self.path
            if State.faults and State.skipped > 0:
                State.skipped -= 1
                return None
            if not State.faults:
                return None
            fault = State.faults[0]
            fault[0] -= 1
            if fault[0] == 0:
                State.faults.pop(0)
            return fault

    def forward(self):
        key = (self.path, self.headers.get("Range"))
        if State.remembered is None:
            return self.ask()
        if key not in State.remembered:
            State.remembered[key] = self.ask()
        return State.remembered[key]

    def ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", State.backend)
        kept = {name: value for name, value in self.headers.items() if name.lower() in ("range", "if-match")}
        kept["Authorization"] = ("AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, "
                                 "SignedHeaders=host, Signature=0")  # moto requires a signature but does not check it
        connection.request(self.command, self.path, headers=kept)
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        wanted = ("etag", "content-range", "content-type", "x-amz-bucket-region")
        return reply.status, [(n, v) for n, v in reply.getheaders() if n.lower() in wanted], body

    def do_GET(self):
        try:
            self.serve()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_GET

    def serve(self):
        self.record(f"{self.requestline}\n{self.headers}\n".encode())
        fault = self.fault_next()
        kind, argument = (fault[1], fault[2]) if fault else ("", "")
        if State.delay:
            time.sleep(State.delay)
        if kind in ANSWERS:
            return self.answer_error(*ANSWERS[kind])
        if kind == "moved":
            return self.answer_error(301, "PermanentRedirect", "Use this region.", f"<Region>{argument}</Region>",
                                     [("x-amz-bucket-region", argument)])
        if kind == "xml":
            return self.answer(200, [("Content-Type", "application/xml")], urllib.parse.unquote(argument).encode())
        if kind == "nothing":
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        problem = signature_problem(self) if State.id != "anyone" else None
        if problem:
            return self.answer_error(*problem)
        status, headers, body = self.forward()
        if kind == "etag":
            headers = [(n, v) for n, v in headers if n.lower() != "etag"] + [("ETag", '"0123"')]
        if kind == "longer":
            return self.answer(status, headers, body + b"x" * int(argument))
        if kind in ("cut", "stall", "drip"):
            self.close_connection = True
            head = f"HTTP/1.1 {status} Answer\r\nContent-Length: {len(body)}\r\n"
            self.wfile.write((head + "".join(f"{n}: {v}\r\n" for n, v in headers) + "\r\n").encode())
            at = min(int(argument or 0), len(body) - 1)
            self.wfile.write(body[:at])
            self.wfile.flush()
            if kind == "stall":
                time.sleep(30)
            while kind == "drip" and at < len(body):
                self.wfile.write(body[at:at + 1])
                self.wfile.flush()
                at += 1
                time.sleep(0.1)
            return self.connection.shutdown(socket.SHUT_RDWR)
        return self.answer(status, headers, body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


def command_run(words, store):
    name, rest = words[0], words[1:]
    if name == "bucket":
        store.create_bucket(Bucket=rest[0])
    elif name == "put":
        store.put_object(Bucket=rest[0], Key=urllib.parse.unquote(rest[1]),
                         Body=urllib.parse.unquote_to_bytes(rest[2] if len(rest) > 2 else ""))
    elif name == "many":
        for i in range(int(rest[2])):
            # Without HTTP, which takes 1 ms per object.
            s3_backends["123456789012"]["aws"].put_object(rest[0], f"{rest[1]}/{i:06}.jpg", b"x" * int(rest[3]))
    elif name == "upload":
        for folder, _, files in os.walk(rest[2]):
            for file in files:
                path = os.path.join(folder, file)
                with open(path, "rb") as body:
                    store.put_object(Bucket=rest[0], Key=rest[1] + "/" + os.path.relpath(path, rest[2]), Body=body.read())
    elif name == "delete":
        store.delete_object(Bucket=rest[0], Key=urllib.parse.unquote(rest[1]))
    elif name == "keys":
        State.id, State.secret, State.token = (rest + ["", ""])[:3]
    elif name == "region":
        State.region = rest[0]
    elif name == "fault":
        with State.lock:
            State.faults.append([int(rest[0]), rest[1], rest[2] if len(rest) > 2 else ""])
    elif name == "skip":
        State.skipped = int(rest[0])
    elif name == "delay":
        State.delay = int(rest[0]) / 1000
    elif name == "remember":
        State.remembered = {}
    elif name == "dump":
        State.dump = rest[0]
    elif name == "requests":
        with State.lock:
            counts = f"{State.requests} {State.objects}"
            State.requests = State.objects = 0
            State.faults.clear()
            State.skipped = 0
        return counts
    else:
        raise ValueError(f"unknown command {name}")
    return ""


def main():
    for variable in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        del os.environ[variable]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    State.backend = moto._server.port  # pylint: disable=protected-access
    store = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{State.backend}", region_name="us-east-1",
                         aws_access_key_id="any", aws_secret_access_key="any")
    proxy = Server(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(f"ready {proxy.server_address[1]}", flush=True)
    for line in sys.stdin:
        try:
            print(f"ok {command_run(line.split(), store)}".strip(), flush=True)
        except Exception as error:  # the test prints the error
            print(f"failed {line.strip()}: {error}", flush=True)
    os._exit(0)


main()
