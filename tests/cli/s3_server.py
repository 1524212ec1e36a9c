"""A small server of S3 for tests, with faults on demand. Checks every signature.

    with S3Server() as s:
        s.make("bucket")
        s.fault = lambda ask: "503" if ask.number == 4 else None
        ... AWS_ENDPOINT_URL=s.url ...
        s.objects["bucket"]["key"].data

A fault is a word: a status ("500", "503", "409", "403"), "cut" (the connection ends before anything is
done), "deaf" (it is done, and the connection ends without an answer), "truncate" (half of the body),
"etag" (another mark than the object has), "hold" (waits until release() is called), or a function
that is called with the request and whose word counts.
"""
import dataclasses
import email.utils
import hashlib
import hmac
import http.server
import re
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

KEY, SECRET = "AKIDTEST", "a/secret+of=tests"


@dataclasses.dataclass
class Object:
    data: bytes
    etag: str
    changed: float


@dataclasses.dataclass
class Ask:
    """A request as a fault sees it."""
    number: int         # from 1
    change: int         # among those that change something, from 1; 0: it changes nothing
    method: str
    bucket: str
    key: str
    query: dict
    headers: object


def mark(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


class S3Server:
    """The objects, and the server's threads. `lock` makes each request one step."""

    def __init__(self, conditions=True):
        self.lock = threading.RLock()
        self.objects, self.uploads = {}, {}
        self.lies = {}          # key: bytes; in lists of what they begin with, whatever the delimiter
        self.conditions = conditions
        self.fault = lambda ask: None
        self.asks = []
        self.changes = 0
        self.ahead_s = 0        # of the server's clock
        self.gate = threading.Event()
        owner = self

        class Handler(Requests):
            server_of = owner

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.release()
        self.http.shutdown()
        self.http.server_close()

    def make(self, bucket):
        self.objects.setdefault(bucket, {})
        return bucket

    def release(self):
        self.gate.set()

    def keys(self, bucket, prefix=""):
        with self.lock:
            return sorted(k for k in self.objects[bucket] if k.startswith(prefix))

    def put(self, bucket, key, data):
        with self.lock:
            self.objects[bucket][key] = Object(data, mark(data), time.time())

    def environment(self):
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": self.url,
                "AWS_REGION": "test-1"}


class Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of = None

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(time.time() + self.server_of.ahead_s if timestamp is None else timestamp, usegmt=True)

    # ---- answers ----

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        sent = body if not self.half else body[:len(body) // 2]
        for name, value in headers:
            self.send_header(name, value)
        if not any(name == "Content-Length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)
        if self.half:
            self.close_connection = True

    def refuse(self, status, code, message="no"):
        self.answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())

    # ---- the signature, as Amazon describes it ----

    def signature(self, body):
        said = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, "
                            r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", self.headers.get("Authorization", ""))
        if not said:
            return "AccessDenied"
        key, day, region, names, given = said.groups()
        path, _, query = self.path.partition("?")
        pairs = sorted(tuple(p.partition("=")[::2]) for p in query.split("&") if p)
        if hashlib.sha256(body).hexdigest() != self.headers["x-amz-content-sha256"]:
            return "XAmzContentSHA256Mismatch"
        lines = [self.command, path, "&".join(f"{a}={b}" for a, b in pairs)]
        lines += [f"{n}:{' '.join(self.headers[n].split())}" for n in names.split(";")]
        lines += ["", names, self.headers["x-amz-content-sha256"]]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], f"{day}/{region}/s3/aws4_request", digest])
        made = ("AWS4" + SECRET).encode()
        for part in (day, region, "s3", "aws4_request"):
            made = hmac.new(made, part.encode(), hashlib.sha256).digest()
        if key != KEY:
            return "InvalidAccessKeyId"
        return None if hmac.new(made, text.encode(), hashlib.sha256).hexdigest() == given else "SignatureDoesNotMatch"

    # ---- a request ----

    def handle_one(self):
        s = self.server_of
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        _, bucket, *rest = urllib.parse.unquote(path).split("/", 2)
        fields = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        with s.lock:
            changes = self.command in ("PUT", "POST", "DELETE")
            s.changes += changes
            ask = Ask(len(s.asks) + 1, s.changes if changes else 0, self.command, bucket, rest[0] if rest else "", fields,
                      self.headers)
            s.asks.append(ask)
        word = s.fault(ask)
        self.half = word == "truncate"
        self.other = word == "etag"
        if callable(word):
            word = word(self)
        if word == "hold":
            s.gate.wait()
        if word == "cut":
            self.close_connection = True
            return
        if word and word.isdigit():
            self.refuse(int(word), {"503": "SlowDown", "403": "AccessDenied", "409": "ConditionalRequestConflict"}.get(word, "Bad"))
            return
        if (wrong := self.signature(body)):
            self.refuse(403, wrong)
            return
        if abs(s.ahead_s) > 900:
            self.refuse(403, "RequestTimeTooSkewed")
            return
        if bucket not in s.objects:
            self.refuse(404, "NoSuchBucket")
            return
        with s.lock:
            if word == "deaf":
                self.send_nothing(ask, body)
                return
            self.serve(ask, body)

    def send_nothing(self, ask, body):
        self.answer = lambda *_, **__: None
        self.serve(ask, body)
        del self.answer
        self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    def serve(self, ask, body):
        objects = self.server_of.objects[ask.bucket]
        if ask.method == "GET" and not ask.key:
            return self.list_uploads(ask) if "uploads" in ask.query else self.list_objects(ask, objects)
        if "uploads" in ask.query or "uploadId" in ask.query:
            return self.parts(ask, objects, body)
        if ask.method == "PUT":
            return self.put_object(ask, objects, body)
        if ask.method == "DELETE":
            objects.pop(ask.key, None)
            return self.answer(204)
        return self.get_object(ask, objects)

    # ---- objects ----

    def put_object(self, ask, objects, body):
        there = objects.get(ask.key)
        if self.server_of.conditions:
            if ask.headers.get("If-None-Match") == "*" and there:
                return self.refuse(412, "PreconditionFailed")
            if ask.headers.get("If-Match") and not there:
                return self.refuse(404, "NoSuchKey")
            if ask.headers.get("If-Match") and there.etag != ask.headers["If-Match"]:
                return self.refuse(412, "PreconditionFailed")
        objects[ask.key] = Object(body, mark(body), time.time() + self.server_of.ahead_s)
        return self.answer(200, headers=[("ETag", objects[ask.key].etag)])

    def get_object(self, ask, objects):
        there = objects.get(ask.key)
        if ask.key in self.server_of.lies:
            there = Object(self.server_of.lies[ask.key], '"lie"', 0)
        if not there:
            return self.refuse(404, "NoSuchKey")
        if ask.headers.get("If-Match") and there.etag != ask.headers["If-Match"]:
            return self.refuse(412, "PreconditionFailed")
        about = [("ETag", '"another"' if self.other else there.etag),
                 ("Last-Modified", email.utils.formatdate(there.changed, usegmt=True))]
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", ask.headers.get("Range", ""))
        if not asked or self.command == "HEAD":
            length = [("Content-Length", str(len(there.data)))] if self.command == "HEAD" else []
            return self.answer(200, there.data, about + length)
        first, last = int(asked[1]), min(int(asked[2]), len(there.data) - 1)
        if first >= len(there.data):
            return self.refuse(416, "InvalidRange")
        return self.answer(206, there.data[first:last + 1], about + [("Content-Range", f"bytes {first}-{last}/{len(there.data)}")])

    def list_objects(self, ask, objects):
        prefix, split = ask.query.get("prefix", ""), ask.query.get("delimiter")
        most, after = int(ask.query.get("max-keys", 1000)), ask.query.get("continuation-token", "")
        keys, folders = [], []
        for key in sorted(k for k in objects if k.startswith(prefix)):
            head, found, _ = key[len(prefix):].partition(split) if split else (key, "", "")
            name = prefix + head + split if found else key
            if name <= after or (found and name in folders):
                continue
            if len(keys) + len(folders) == most:
                last = max(keys + folders)
                return self.answer(200, self.listing(objects, keys, folders, last))
            (folders if found else keys).append(name)
        lies = {k: Object(data, mark(data), 0) for k, data in self.server_of.lies.items() if k.startswith(prefix)}
        return self.answer(200, self.listing({**objects, **lies}, keys + list(lies), folders, None))

    @staticmethod
    def listing(objects, keys, folders, last):
        text = ["<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>",
                f"<IsTruncated>{'true' if last else 'false'}</IsTruncated>"]
        if last:
            text.append(f"<NextContinuationToken>{escape(last)}</NextContinuationToken>")
        for key in keys:
            text.append(f"<Contents><Key>{urllib.parse.quote_plus(key)}</Key><Size>{len(objects[key].data)}</Size></Contents>")
        for name in folders:
            text.append(f"<CommonPrefixes><Prefix>{urllib.parse.quote_plus(name)}</Prefix></CommonPrefixes>")
        return "".join(text + ["</ListBucketResult>"]).encode()

    # ---- objects in parts ----

    def parts(self, ask, objects, body):
        uploads = self.server_of.uploads
        if "uploads" in ask.query:
            name = f"up+{len(self.server_of.asks)}/="
            uploads[name] = (ask.bucket, ask.key, {})
            return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>".encode())
        if ask.query["uploadId"] not in uploads:
            return self.refuse(404, "NoSuchUpload")
        _, key, parts = uploads[ask.query["uploadId"]]
        if ask.method == "PUT":
            parts[int(ask.query["partNumber"])] = body
            return self.answer(200, headers=[("ETag", mark(body))])
        del uploads[ask.query["uploadId"]]
        if ask.method == "DELETE":
            return self.answer(204)
        named = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag>", body.decode())
        if [(int(n), e.replace("&quot;", '"')) for n, e in named] != [(n, mark(p)) for n, p in sorted(parts.items())]:
            return self.refuse(400, "InvalidPart")
        data = b"".join(p for _, p in sorted(parts.items()))
        objects[key] = Object(data, f'"{hashlib.md5(data).hexdigest()}-{len(parts)}"', time.time())
        return self.answer(200, b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")

    def list_uploads(self, ask):
        text = "".join(f"<Upload><Key>{urllib.parse.quote_plus(key)}</Key><UploadId>{name}</UploadId></Upload>"
                       for name, (bucket, key, _) in self.server_of.uploads.items()
                       if bucket == ask.bucket and key.startswith(ask.query.get("prefix", "")))
        self.answer(200, f"<ListMultipartUploadsResult>{text}</ListMultipartUploadsResult>".encode())
