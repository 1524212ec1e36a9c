#!/usr/bin/env python3
"""check_includes.py [ROOT] - do include lines point only downwards?

The table below is the picture of docs/architecture.md: each folder of src/ and
the folders it may see. A public header belongs to the folder that implements
it and obeys the same directions. Programs (cli, dash, python) see the public
headers only. Prints one line per violation and exits 1 when there is any.
"""
import pathlib
import re
import sys

SEES = {
    "base": [],
    "os": ["base"],
    "net": ["base", "os"],
    "store": ["base", "os", "net"],
    "comm": ["base", "os", "net"],
    "task": ["base", "os", "net", "store"],
    "tensor": ["base", "os"],
    "nn": ["base", "tensor"],
    "data": ["base", "os", "tensor"],
    "format": ["base", "os", "tensor", "nn", "data"],
    "train": ["base", "os", "net", "store", "comm", "task", "tensor", "nn", "data", "format"],
}
PROGRAMS = ["cli", "dash", "python"]

# Which folder implements include/manta/NAME.h. The umbrella include/manta.h
# is everyone's.
OWNER = {
    "status": "base",
    "array": "base",
    "version": "base",
    "log": "base",
    "comm": "comm",
    "task": "task",
    "node": "task",
    "tensor": "tensor",
    "op": "nn",
    "layer": "nn",
    "model": "nn",
    "loss": "nn",
    "metric": "nn",
    "optimizer": "nn",
    "schedule": "nn",
    "initializer": "nn",
    "zoo": "nn",
    "data": "data",
    "loader": "data",
    "format": "format",
    "file": "format",
    "events": "format",
    "onnx": "format",
    "train": "train",
    "cluster": "train",
    "checkpoint": "train",
    "callback": "train",
    "run": "train",
    "trainer": "train",
    "strategy": "train",
}

# Headers of libraries, and the only folders that may know of them.
LIBRARY = {
    "oneapi/": ["tensor"],
    "dnnl": ["tensor"],
    "zlib.h": ["format"],
    "libdeflate.h": ["format"],
    "zstd.h": ["format"],
    "snappy-c.h": ["format"],
    "png.h": ["format"],
    "jpeglib.h": ["format"],
    "jerror.h": ["format"],
    "curl/": ["format"],
    "openssl/": ["net"],
    "jansson.h": ["format", "train", "cli", "dash"],
    "sqlite3.h": ["train"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def includes(path):
    """(line number, '<' or '"', name) of every include line of a file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    for m in INCLUDE.finditer(text):
        yield text.count("\n", 0, m.start(2)) + 1, m.group(1), m.group(2)


def sources(folder):
    """C files, headers and files made to be included, under a folder."""
    return sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h", ".inc"))


def resolve(root, path, name):
    """The file of the repository that an include line names, or None for a system header."""
    for folder in (path.parent, root / "src", root / "include", root / "tests" / "unit"):
        if (folder / name).is_file():
            return folder / name
    return None


def closure(root, path, seen=None):
    """The file and every file of the repository it includes, directly or not."""
    seen = {} if seen is None else seen
    path = path.resolve()
    if path not in seen:
        seen[path] = True
        for _, _, name in includes(path):
            target = resolve(root, path, name)
            if target is not None:
                closure(root, target, seen)
    return list(seen)


def violation(folder, quote, name, own_folder):
    """Why a file of `folder` may not include `name`; None when it may."""
    allowed = [folder] + SEES.get(folder, [])
    if name == "manta.h":
        return None if folder in PROGRAMS else "the umbrella header is for users; name the header that is meant"
    if name.startswith("manta/"):
        stem = name[len("manta/"):-len(".h")]
        owner = OWNER.get(stem)
        if owner is None:
            return f"{name} has no owner; name one in OWNER of tools/check_includes.py"
        if folder in PROGRAMS or owner in allowed:
            return None
        return f"{name} belongs to {owner}/, which {folder}/ may not see"
    for prefix, folders in LIBRARY.items():
        if name.startswith(prefix):
            return None if folder in folders else f"{name} is known only in {', '.join(f + '/' for f in folders)}"
    if quote == "<":
        return None
    if ".." in name.split("/"):
        return "an include line names its folder, not a way there"
    if "/" not in name:
        return None if (own_folder / name).is_file() else f"{name} is not in this folder"
    target = name.split("/")[0]
    if target not in SEES and target not in PROGRAMS:
        return None if (own_folder / name).is_file() else f"{target}/ is no folder of src/"
    if target in allowed:
        return None
    return f"{folder}/ may not see {target}/"


def check(root):
    """All violations under root, as 'path:line: sentence'."""
    found = []

    def look(path, folder):
        for line, quote, name in includes(path):
            why = violation(folder, quote, name, path.parent)
            if why:
                found.append(f"{path.relative_to(root)}:{line}: {why}")

    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        if folder.name not in SEES and folder.name not in PROGRAMS:
            found.append(f"src/{folder.name}: not in SEES of tools/check_includes.py")
            continue
        for path in sources(folder):
            look(path, folder.name)
    for path in sorted((root / "include" / "manta").glob("*.h")):
        owner = OWNER.get(path.stem)
        if owner is None:
            found.append(f"include/manta/{path.name}: no owner; name one in OWNER of tools/check_includes.py")
            continue
        for line, quote, name in includes(path):
            why = violation(owner, quote, name, path.parent)
            if quote == '"':
                why = "a public header includes <manta/...> and the C library only"
            elif not name.startswith("manta/") and any(name.startswith(p) for p in LIBRARY):
                why = f"{name} of a library must not show in a public header"
            if why:
                found.append(f"{path.relative_to(root)}:{line}: {why}")
    unit = root / "tests" / "unit"
    for folder in sorted(p for p in unit.iterdir() if p.is_dir()) if unit.is_dir() else []:
        if folder.name in SEES:
            for path in sources(folder):
                for line, quote, name in includes(path):
                    if quote == '"' and (unit / name).is_file():
                        continue        # a helper shared by tests
                    why = violation(folder.name, quote, name, path.parent)
                    if why and not any(name.startswith(p) for p in LIBRARY):
                        found.append(f"{path.relative_to(root)}:{line}: {why}")
    touching = [p for p in sources(root / "src" / "tensor")
                if any(n.startswith(("oneapi/", "dnnl")) for _, _, n in includes(p))]
    if len(touching) > 1:
        names = ", ".join(str(p.relative_to(root)) for p in touching)
        found.append(f"one file touches oneDNN, but these do: {names}")
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found = check(root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
