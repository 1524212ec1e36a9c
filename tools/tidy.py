#!/usr/bin/env python3
"""tidy.py BUILD [FILE...] - clang-tidy over src/, only where something changed.

BUILD holds compile_commands.json (made with clang, so that every flag is
understood). A source is run again when it, a header of ours that it includes,
its compile command, .clang-tidy or clang-tidy itself differs from the last
clean run; the hashes are kept in BUILD/tidy-cache. Prints the findings and
exits 1 when there is any.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_includes  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")


def key(entry, version):
    h = hashlib.sha256()
    h.update(version + (ROOT / ".clang-tidy").read_bytes() + entry["command"].encode())
    for path in check_includes.closure(ROOT, pathlib.Path(entry["file"])):
        h.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()


def tidy(build, source):
    # -Wno-unknown-warning-option: what gcc knows and clang does not is no finding.
    done = subprocess.run([TIDY, "-p", str(build), "--quiet", "--warnings-as-errors=*",
                           "--extra-arg=-Wno-unknown-warning-option", source],
                          capture_output=True, text=True, cwd=ROOT, timeout=600)
    return done.returncode, done.stdout, done.stderr


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    only = [str(pathlib.Path(a).resolve()) for a in sys.argv[2:]]
    if TIDY is None:
        print("clang-tidy is not installed")
        return 1
    version = subprocess.run([TIDY, "--version"], capture_output=True).stdout
    cache = build / "tidy-cache"
    cache.mkdir(exist_ok=True)
    entries = [e for e in json.loads((build / "compile_commands.json").read_text())
               if pathlib.Path(e["file"]).is_relative_to(ROOT / "src") and pathlib.Path(e["file"]).is_file()
               and (not only or e["file"] in only)]
    changed = {}
    for e in entries:
        k = key(e, version)
        if not (cache / k).exists():
            changed[e["file"]] = k
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        runs = {pool.submit(tidy, build, f): f for f in changed}
        for run in concurrent.futures.as_completed(runs):
            rc, out, err = run.result()
            if rc == 0:
                (cache / changed[runs[run]]).touch()
                continue
            bad += 1
            print(out if out.strip() else err, flush=True)
    print(f"{len(entries)} files, {len(changed)} of them changed, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
