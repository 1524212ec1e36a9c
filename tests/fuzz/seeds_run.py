"""Writes the first inputs of corpus/run: config.json, result.json, metrics.jsonl and a manifest, a byte 0 between."""
import json
import os

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "run")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def put(name, *parts):
    os.makedirs(here, exist_ok=True)
    with open(os.path.join(here, name), "wb") as f:
        f.write(b"\0".join(p if isinstance(p, bytes) else p.encode() for p in parts))


def compact(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def sealed(config):
    return json.dumps({**config, "check": f"{crc32c(compact(config).encode()):08x}"})


def line(epoch, step, rank, **metrics):
    return json.dumps({"epoch": epoch, "step": step, "rank": rank, "time": 1763200000.5 + step, "metrics": metrics}) + "\n"


def manifest(**more):
    body = {"manta_checkpoint": 1, "sequence": 1, "epoch": 1, "step": 0, "iterations": 3, "metrics": {"loss": 0.5},
            "notes": {}, "files": [{"name": "a.txt", "size": 5, "crc32c": f"{crc32c(b'bytes'):08x}"}], **more}
    return compact({**body, "crc32c": f"{crc32c(compact(body).encode()):08x}"})


config = {"model": "mlp", "data": "mnist", "epochs": "3", "seed": "7", "momentum": "0.9", "debug": True, "save": "m.keras"}
result = json.dumps({"status": "failed", "metrics": {"loss": 0.25, "nan": None}, "began": 1763200000.0,
                     "ended": 1763200009.5, "epoch": 2, "step": 6, "checkpoint": "/x/checkpoint-000001",
                     "error": "rank 1 of 2: the flux is reversed", "code": "invalid", "error_rank": 1, "failures": 3,
                     "workers": 2})
record = line(1, 1, 0, loss=1.5, accuracy=0.5) + line(1, 1, 1, loss=2) + line(2, 2, 0, loss=0.5)

put("whole", sealed(config), result, record, manifest())
put("running", sealed(config), "", record, manifest(notes={"reports": "1,1", "workers": "2"}))
put("without-check", json.dumps(config), result, record, manifest())
put("changed", sealed(config).replace("mlp", "mlq"), result, record, manifest())
put("options-of-each-kind-wrong", json.dumps({"seed": "-1"}), result)
put("no-option", sealed({"shrubbery": "yes"}), "[]", "[]\n{}\n")
put("twice", '{"seed":"1","seed":"2"}', '{"status":"done","status":"failed"}')
put("deep", "[" * 3000, "{\"metrics\":" * 3000, "[" * 3000 + "\n")
put("numbers", sealed({"seed": "9223372036854775807"}),
    '{"status":"done","failures":-1,"workers":99999999999,"error_rank":2147483648,"began":1e999,"metrics":{"a":1e308}}',
    line(2**62, 2**62, 0) + line(-1, -1, -1) + '{"epoch":1.5,"step":"x","rank":null,"metrics":7}\n',
    manifest(epoch=2**62, step=-1))
put("long-names", json.dumps({"x" * 300: "y" * 3000}), json.dumps({"status": "s" * 300, "error": "e" * 3000}),
    line(1, 1, 0, **{"m" * 100: 1, "m" * 63: 2}), manifest(metrics={"m" * 100: 1}))
put("many-metrics", sealed({}), "{}", line(1, 1, 0, **{f"m{i}": i for i in range(100)}),
    manifest(metrics={f"m{i}": i for i in range(100)}))
put("cut", sealed(config)[:-9], result[:-9], record[:-9], manifest()[:-9])
put("no-text", b"\xff\xfe", b"\xc3(", b"\xc3(\n{}\n", b"\xff")
put("at", sealed(config), result, record.replace('"rank"', '"at": 2, "rank"'), manifest(notes={"reports": "9,,x"}))
put("another-file", sealed(config), result, record, manifest(files=[{"name": "../../config.json", "size": 1, "crc32c": "00000000"}]))
put("damaged-file", sealed(config), result, record, manifest(files=[{"name": "a.txt", "size": 5, "crc32c": "00000000"}]))
put("empty", "", "", "", "")
