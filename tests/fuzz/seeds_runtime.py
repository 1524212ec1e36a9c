"""Writes the first inputs of corpus/daemon, corpus/runtime, corpus/channel, corpus/packed and corpus/worker_trace: messages as docs/runtime.md lists them."""
import os
import re
import struct

here = os.path.dirname(os.path.abspath(__file__))


def kinds():
    """The numbers of src/task/proto.h."""
    text = open(os.path.join(here, "..", "..", "src", "task", "proto.h")).read()
    body = re.sub(r"/\*.*?\*/", "", re.search(r"typedef enum proto_kind \{(.*?)\}", text, re.S).group(1), flags=re.S)
    at, out = 0, {}
    for name in filter(None, (x.strip() for x in body.split(","))):
        name, _, value = (x.strip() for x in name.partition("="))
        at = int(value) if value else at + 1
        out[name] = at
    return out


K = kinds()


def u32(*x):
    return struct.pack(f"<{len(x)}I", *x)


def u64(*x):
    return struct.pack(f"<{len(x)}Q", *x)


def text(s):
    return u64(len(s)) + s.encode()


def message(kind, *fields):
    out = u32(K["PROTO_" + kind], 0)
    for field in fields:
        out += field(len(out)) if callable(field) else field    # of a value: where it lies
    return out


def number(x):
    return bytes([1, 0, 0, 0]) + u64(8) + struct.pack("<d", x)


def refs(*ids):
    return lambda at: bytes([7, 0, 0, 0]) + u64(8 * len(ids)) + b"\0" * (-(at + 12) % 8) + u64(*ids)


def actor(x):
    return bytes([8, 0, 0, 0]) + u64(8, x)


def place(segment, at, size):
    return bytes([5, 0, 0, 1]) + u64(size, segment, at)


def packed_bytes(head, blocks=(), ids=(), handles=()):
    """A packed value as src/task/packed.h draws it."""
    out = u64(len(head)) + u32(len(blocks), len(ids), len(handles), 0) + u64(*ids, *handles)
    end, ends, tail = len(out) + 8 * len(blocks) + len(head), [], head
    for block in blocks:
        pad = -end % 64
        tail += b"\0" * pad + block
        end += pad + len(block)
        ends.append(end)
    return out + u64(*ends) + tail


def packed(*parts):
    data = packed_bytes(*parts)
    return lambda at: bytes([10, 0, 0, 0]) + u64(len(data)) + b"\0" * (-(at + 12) % 8) + data


def letters(*rows):
    return b"".join(bytes([who]) + (struct.pack("<H", len(m)) + m if m is not None else b"") for who, m in rows)


def put(target, name, data):
    os.makedirs(f"{here}/corpus/{target}", exist_ok=True)
    with open(f"{here}/corpus/{target}/{name}", "wb") as f:
        f.write(data)


def obj(client, n):
    return client << 40 | n


FAILURE_HEAD = u32(1, 3, 99) + text("f") + text("host") + text("g > f") + text("it failed")
FAILURE = FAILURE_HEAD + u32(0)
SHAPE = u64(10000, *[0] * 15)

put("daemon", "objects", letters(
    (0, message("PROMISE", u64(obj(1, 1)))), (1, message("WANT", u64(obj(1, 1)))),
    (0, message("ADD", u64(obj(1, 1)), u32(1), u64(0, 0), number(2.0), u64(0), u64(obj(1, 2)), u32(1), u64(0, 0), number(1.0), u64(1, obj(1, 1)))),
    (1, message("HOLD", u32(2, 0), u64(1, obj(1, 2)))), (0, message("DROP", u64(2, obj(1, 1), obj(1, 2)))), (255, None),
    (1, message("DROP", u64(1, obj(1, 2)))), (255, None), (2, message("WANT", u64(obj(1, 9)))), (255, None),
    (0, message("FAIL", u64(obj(1, 3)), FAILURE)), (241, None), (255, None)))
put("daemon", "memory", letters(
    (1, message("SEGMENT_NEW", u64(1, 4096, 65536))), (1, message("ADD", u64(obj(2, 1)), u32(1), u64(0, 0), place(1, 64, 1000), u64(0))),
    (0, message("SEGMENT_OPEN", u64(5, 1))), (1, message("SEGMENT_NEW", u64(2, 1 << 20, 1 << 20))),
    (0, message("SEGMENT_CLOSED", u64(1, 1))), (0, message("MISSED", u64(obj(2, 1), 1, 64))),
    (1, message("SEGMENT_FREE", u64(1))), (0, message("MISSED", u64(obj(2, 1), 1, 64))), (241, None), (255, None)))
put("daemon", "leases", letters(
    (0, message("DEMAND", SHAPE, u64(3, 1))), (1, message("READY")), (1, message("BLOCKED", u32(1))), (1, message("BLOCKED", u32(0))), (1, message("RETIRE")), (0, message("RETIRE")),
    (0, message("RETURN", u32(2))), (0, message("CANCEL", u32(2), u64(1), u32(1))), (0, message("INFO", u64(4))),
    (240, None), (255, None)))
put("runtime", "answers", letters(
    (1, message("DONE", u64(obj(1, 1), 1000), u32(2), number(1.0), place(3, 0, 100))),
    (1, message("FAILED", u64(obj(1, 3), 5), FAILURE)), (1, message("RETURNED", u64(obj(1, 1)))), (1, message("WAITS", u32(1))),
    (1, message("ITEM", u64(obj(1, 3), 0, 0), number(4.0)))))
put("runtime", "calls", letters(
    (1, message("CALL", u64(5, 0), u32(0, 1), text("anything"), text("label"), u32(2), number(1.0), place(3, 0, 100))),
    (1, message("CALL", u64(6, 0), u32(10001, 0x60000001), u64(9), u32(1, 0), text("anything"), text("label"), u32(1), number(1.0))), (1, message("TAKEN", u64(6, 1))),
    (1, message("PROBE", u64(6, obj(1, 1)), u32(1, 0), text("f > g"), text("h")))))
put("runtime", "daemon", letters(
    (0, message("OBJECT", u64(obj(1, 1)), number(1.0))), (0, message("OBJECT_FAILED", u64(obj(1, 2)), FAILURE)),
    (0, message("REBUILD", u64(obj(1, 1)), text("why"))), (0, message("SEGMENT_ASK", u64(1))), (0, message("SEGMENT_GONE", u64(1))),
    (0, message("FREE", u64(obj(1, 1)))), (0, message("GRANT", u32(7), SHAPE, u64(1))), (0, message("RECLAIM", u32(7))),
    (0, message("CANCEL_TASK", u64(5))), (0, message("ACTOR_DEAD", u64(9), FAILURE))))
put("runtime", "waiting", letters(
    (0, message("ACTOR_AT", u64(obj(1, 4)), u32(7, 0x7ffffff0, 0, 0, 0))), (1, message("DONE", u64(obj(1, 5), 10), u32(1), number(1.0))),
    (1, message("DONE", u64(obj(1, 1), 1000), u32(2), number(1.0), refs(obj(7, 1)))),
    (1, message("FAILED", u64(obj(1, 6), 5), FAILURE)), (1, message("RETURNED", u64(obj(1, 6)))),
    (1, message("DONE", u64(obj(1, 6), 5), u32(1), number(1.0))), (0, message("REBUILD", u64(obj(1, 1)), text("lost"))),
    (0, message("ACTOR_DEAD", u64(obj(1, 4)), FAILURE)), (0, message("GONE", u32(7, 9, 0), u64(0, 0)))))
NEXT = obj(1, 7)                    # runtime_fuzz.c has made six
put("runtime", "numbers-to-come", letters(
    (1, message("DONE", u64(obj(1, 1), 1000), u32(2), refs(NEXT, NEXT + 1), actor(NEXT + 2))),
    (1, message("ITEM", u64(obj(1, 3), 0, 0), refs(NEXT + 3))), (1, message("ITEM", u64(obj(1, 3), 1, NEXT + 2), number(1.0))),
    (1, message("CALL", u64(5, 0), u32(0, 1), text("anything"), text("label"), u32(2), refs(NEXT + 4), actor(NEXT + 5))),
    (0, message("CONSTRUCT", u64(9), u32(1), text("")))))
put("runtime", "numbers-twice", letters(
    (1, message("ITEM", u64(obj(1, 3), 0, obj(7, 1)), number(1.0))), (1, message("ITEM", u64(obj(1, 3), 1, obj(7, 1)), number(2.0))),
    (1, message("ITEM", u64(obj(1, 3), 2, obj(1, 1)), place(3, 0, 100))), (1, message("ITEM", u64(obj(1, 3), 3, obj(1, 3)), number(3.0))),
    (1, message("DONE", u64(obj(1, 1), 1000), u32(2), refs(obj(7, 1), obj(7, 2)), actor(obj(7, 3))))))
put("runtime", "peers", letters(
    (2, message("PEER", u32(8, 0x7ffffff1, 0))), (2, message("PEER", u32(8, 0x7ffffff2, 1))), (2, message("PEER", u32(7, 0x7ffffff3, 0))),
    (0, message("PEER", u32(9, 0x7ffffff4, 0))), (2, message("GRANT", u32(8), SHAPE, u64(1))), (2, message("ACTOR_AT", u64(obj(7, 3)), u32(8, 1, 2, 3, 0))),
    (2, message("SEGMENT", u64(1), u32(0), u64(5), text(""))), (2, message("OUTPUT", u32(8, 0x7ffffff1))),
    (0, message("GONE", u32(7, 9, 0), u64(0, 0))), (2, message("PEER", u32(7, 0x7ffffff5, 0))), (1, message("WAITS", u32(1))),
    (0, message("GONE", u32(8, 9, 1), u64(1 << 30, 1 << 20)))))
body = message("DONE", u64(1, 2), u32(1), number(1.0))
put("channel", "message", b"\1" + struct.pack("<HH", 8 + len(body), 4096 // 4) + u32(len(body), 0) + body
    + struct.pack("<HH", 8, 0) + u64(8 + len(body)) + b"\0" * 8)
put("channel", "places", b"\0" + b"".join(bytes([1]) + u64(at, n) + bytes([flags])
                                       for at, n, flags in ((0, 8192, 0), (8191, 1, 5), (2**64 - 1, 2, 1), (64, 2**63, 8))))


def trace(*patches):
    """Bytes at places of a worker's trace (src/task/worker_trace.c)."""
    return b"".join(bytes([len(x)]) + struct.pack("<H", at // 8) + x for at, x in patches)


def live_name(s):
    return u64(2) + s.encode().ljust(40, b"\0")         # an even number, and the name


NAME, LABEL, TASK, CALLS_N, MARKS = 0, 48, 96, 112, 144     # where they lie: fields of struct worker_trace
MARK, CALL = 56, 64
RING = MARKS + 16 * MARK
mark = u64(100, 20) + b"before".ljust(40, b"\0")
call = u64(obj(1, 5), 10**9, 2 * 10**9) + u32(0) + b"add".ljust(36, b"\0")
put("worker_trace", "calls", trace((NAME, live_name("train")), (LABEL, live_name("train")), (TASK, u64(obj(1, 6), 3 * 10**9)),
                            (RING, call), (RING + CALL, call), (CALLS_N, u64(2, 0)), (MARKS, mark), (CALLS_N, u64(2, 1))))
put("worker_trace", "numbers", trace((CALLS_N, u64(2**64 - 1, 2**64 - 1)), (CALLS_N, u64(5000, 17)), (CALLS_N, u64(3, 1)),
                              (MARKS, b"\xff" * 56), (NAME, b"\xff" * 48), (LABEL, u64(1) + b"x" * 40), (RING, b"\xff" * 64)))

put("packed", "nothing", packed_bytes(b""))
put("packed", "head", packed_bytes(b"only a head"))
put("packed", "blocks", packed_bytes(b"h", [b"weights" * 9, b"", b"bias"]))
put("packed", "inner", packed_bytes(b"", [b"x"], [obj(2, 1), obj(2, 2)], [obj(3, 1)]))
put("runtime", "packed", letters(
    (1, message("CALL", u64(obj(7, 9), 0), u32(0, 1), text("anything"), text(""), u32(2),
                packed(b"h", [b"weights" * 9, b"", b"bias"], [obj(1, 2)], [obj(3, 1)]), number(1.0))),
    (1, message("DONE", u64(obj(1, 1)), u64(100), u32(2), packed(b"", [b"y" * 70], [obj(7, 3)]), number(2.0)))))
CARRIES = packed_bytes(b"a long text\0", [b"bytes of an exception"])
WITH_BYTES = FAILURE_HEAD + u32(1) + u64(len(CARRIES)) + CARRIES
put("runtime", "streams", letters(
    (1, message("CALL", u64(8, 0), u32(0, 0x90000001), u64(3), text("anything"), text(""), u32(0))),
    (1, message("CALL", u64(9, 0), u32(0, 0xb0000001), u64(9), u32(1, 0), u64(0xffffffff), text("anything"), text(""), u32(0))),
    (1, message("CALL", u64(10, 0), u32(0, 0x08000001), u64(1), text("anything"), text(""), u32(0)))))
put("runtime", "payloads", letters(
    (1, message("FAILED", u64(obj(1, 3), 5), WITH_BYTES)),
    (1, message("DONE", u64(obj(1, 1), 1000), u32(2), u32(0xff), WITH_BYTES, u32(0xff), FAILURE_HEAD + u32(3) + u64(obj(7, 5)))),
    (0, message("OBJECT_FAILED", u64(obj(1, 2)), FAILURE_HEAD + u32(2) + u64(obj(7, 5)))),
    (0, message("OBJECT_FAILED", u64(obj(1, 2)), FAILURE_HEAD + u32(2) + u64(NEXT + 1))),
    (0, message("ACTOR_DEAD", u64(obj(1, 4)), WITH_BYTES)), (1, message("FAILED", u64(obj(1, 6), 5), FAILURE_HEAD + u32(3) + u64(obj(7, 6))))))
put("daemon", "payloads", letters(
    (0, message("PROMISE", u64(obj(1, 1)))), (1, message("ADD", u64(obj(2, 1)), u32(1), u64(0, 0), packed(b"t\0", [b"x"]), u64(0))),
    (0, message("FAIL", u64(obj(1, 1)), FAILURE_HEAD + u32(2) + u64(obj(2, 1)))), (1, message("WANT", u64(obj(1, 1)))),
    (0, message("PROMISE", u64(obj(1, 2)))), (0, message("FAIL", u64(obj(1, 2)), WITH_BYTES)), (1, message("WANT", u64(obj(1, 2)))),
    (1, message("ACTOR_FAILED", u64(9), FAILURE_HEAD + u32(2) + u64(obj(2, 1)))), (255, None),
    (0, message("DROP", u64(2, obj(1, 1), obj(1, 2)))), (1, message("DROP", u64(1, obj(2, 1)))), (241, None), (255, None)))
KEY = bytes(range(16))
put("daemon", "code", letters(
    (0, message("ADD", u64(obj(1, 1)), u32(1), u64(0, 0), number(2.0), u64(0))), (1, message("CODE_GET", u64(1), KEY)),
    (0, message("CODE_PUT", u64(2), KEY, u64(obj(1, 1)))), (1, message("CODE_GET", u64(3), KEY)),
    (1, message("CODE_PUT", u64(4), KEY, u64(obj(2, 1)))), (0, message("DROP", u64(1, obj(1, 1)))), (255, None),
    (1, message("CODE_PUT", u64(5), KEY[::-1], u64(obj(2, 77)))), (1, message("CODE_GET", u64(6), KEY[::-1])), (240, None), (255, None)))
put("daemon", "packed", letters(
    (0, message("ADD", u64(obj(1, 1)), u32(1), u64(0, 0), number(2.0), u64(0))),
    (0, message("ADD", u64(obj(1, 2)), u32(2), u64(0, 0), packed(b"h", [b"z"], [obj(1, 1)]), u64(1, obj(1, 1)))),
    (1, message("WANT", u64(obj(1, 2)))), (255, None), (1, message("DROP", u64(1, obj(1, 2)))), (255, None)))
put("daemon", "gifts", letters(
    (1, message("SEGMENT_NEW", u64(1, 4096, 65536))),
    (1, message("ADD", u64(obj(1, 1)), u32(1), u64(obj(1, 1), 2 ** 64 - 1), place(1, 64, 1000), u64(0))),
    (0, message("PROMISE", u64(obj(1, 2)))), (1, message("GIVE", u32(1, 0), u64(obj(1, 3), 4, 1, obj(1, 2)))),
    (1, message("GIVE", u32(3, 0), u64(obj(3, 3), 0, 1, obj(1, 2)))), (0, message("UNHEARD", u32(2, 0), u64(1, obj(1, 3), 4))), (241, None),
    (0, message("UNHEARD", u32(2, 0), u64(2, obj(1, 1), 0, obj(1, 3), 5))), (255, None), (2, message("UNHEARD", u32(2, 0), u64(0))), (255, None)))
