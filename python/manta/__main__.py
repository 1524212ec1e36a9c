"""python -m manta: runs programs that were written for Ray, TensorFlow or PyTorch, and is the program `manta`.

    python -m manta run script.py [ARGUMENT...]             `import ray` is manta.ray, in workers too
    python -m manta run -m module [ARGUMENT...]
    python -m manta launch -n 2 script.py [ARGUMENT...]     two processes of a TF_CONFIG or torchrun program (_launch.py)
    python -m manta launch --on HOSTS -- PROGRAM ...        the program's: many hosts (docs/clusters.md)
    python -m manta COMMAND ...                             the program: status, ps, train, ... (help)
"""
from __future__ import annotations

import os
import runpy
import subprocess
import sys
import types
from typing import NoReturn

USAGE = "usage: python -m manta run [-m MODULE | SCRIPT] [ARGUMENT...]"
HELP = USAGE + """

Runs a script or a module that was written for Ray: `import ray` is manta.ray in it, in its workers too."""
OURS = """
With Python:
  run [-m MODULE | SCRIPT] [ARGUMENT...]    Run a program that was written for Ray: `import ray` is manta.ray"""


def _run_script(path: str, arguments: list[str]) -> None:
    """Runs a file as `python FILE` does: it is `__main__`, and its folder comes first in sys.path."""
    try:
        with open(path, "rb") as f:
            source = f.read()
    except OSError as e:
        sys.exit(f"manta run: {path}: {e.strerror}")
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None, __spec__=None, __loader__=None)
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    sys.modules["__main__"] = main
    try:
        exec(compile(source, path, "exec"), main.__dict__)
    except Exception as e:
        # What is shown begins with the user's own line.
        here = e.__traceback__.tb_next if e.__traceback__ else None
        sys.excepthook(type(e), e.with_traceback(here), here)
        sys.exit(1)


def run(arguments: list[str]) -> None:
    """`manta run`: a script or module with manta.ray in the place of Ray."""
    from manta import _alias

    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP if arguments else USAGE, file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    _alias.install()
    if arguments[0] == "-m":
        if len(arguments) < 2:
            sys.exit(USAGE)
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0].startswith("-"):
        sys.exit(f"manta run: no option is called {arguments[0]}\n{USAGE}")
    else:
        _run_script(arguments[0], arguments[1:])


def _find_program() -> str:
    """The program `manta` that came with this package, or of the build tree it lies in."""
    here = os.path.dirname(os.path.abspath(__file__))
    tree = os.path.dirname(os.path.dirname(here))       # BUILD/python/manta
    for path in (os.path.join(here, "_lib", "manta"), os.path.join(tree, "manta")):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    sys.exit(f"manta: the program is neither in {here}/_lib nor in {tree}; only `run` and `launch` are here")


def _show_help(path: str) -> NoReturn:
    """The program's own help, and what there is beside it."""
    code = subprocess.call([path, *sys.argv[1:]])
    if code == 0:
        try:
            print(OURS, flush=True)
        except BrokenPipeError:
            os._exit(0)         # whoever reads has read enough
    sys.exit(code)


def _names_hosts(words: list[str]) -> bool:
    """Whether a launch says --on: before its script, module or --, behind which words are the program's."""
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "--"):
        name, equals, _ = rest.pop(0).partition("=")
        if name == "--on":
            return True
        has_value = not equals and name not in ("--no-prefix", "--print", "--dry-run") and (name == "-n" or name[:2] != "-n")
        if has_value and rest and not rest[0].startswith("-"):
            del rest[0]
    return False


def program() -> NoReturn:
    """What `manta` at a prompt calls: `run`, and `launch` on this host, are ours, all else the program's."""
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
        sys.exit(0)
    if sys.argv[1:2] == ["launch"] and not _names_hosts(sys.argv[2:]):
        from manta import _launch

        sys.exit(_launch.launch(sys.argv[2:]))
    if sys.argv[1:] == ["help", "run"]:
        run(["--help"])
    path = _find_program()
    if sys.argv[1:] in (["help"], ["--help"], ["-h"]):
        _show_help(path)
    os.execv(path, ["manta", *sys.argv[1:]])


if __name__ == "__main__":
    program()
