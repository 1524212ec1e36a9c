"""What the tests of the house share: where things are, and running commands."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("MANTA_BUILD", ROOT / "build" / "release"))

sys.path.insert(0, str(ROOT / "tools"))


def run(*command, timeout_s=300, text_in="", **kwargs):
    """Runs a command to its end and returns it, input and output as text."""
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, input=text_in,
                          timeout=timeout_s, **kwargs)


def tracked(*patterns):
    """Files of the repository (known to git, or new and not ignored) that match."""
    done = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
