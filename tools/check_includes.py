#!/usr/bin/env python3
"""check_includes.py [ROOT] - do include lines point only downwards?

The tables below are the picture of docs/architecture.md: each folder of src/
and the folders it may see; for a folder that is divided into rooms, each room
and the rooms of the same folder that it may see. A public header belongs to the
folder that implements it and obeys the same directions. Programs (cli, dash,
python) see the public headers only. Processes are started and waited for in os/
alone. Prints one line per violation, and per row of a table that nothing needs
any more, and exits 1 when there is any.
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
    "web": ["base", "os"],
    "tensor": ["base", "os"],
    "gpu": ["base", "os", "tensor"],
    "nn": ["base", "tensor"],
    "data": ["base", "os", "tensor"],
    "format": ["base", "os", "web", "tensor", "nn", "data"],
    "train": ["base", "os", "net", "store", "comm", "task", "web", "tensor", "gpu", "nn", "data", "format"],
    "launch": ["base", "os", "net", "train"],
}
PROGRAMS = ["cli", "dash", "python"]
# Programs that are linked with folders of the library, and the folders they see.
PARTS = {"node": ["base", "os", "net", "store", "task"]}

# The rooms of a folder, from bottom to top, and the rooms of the same folder
# that each may see. What a folder may see, its rooms may. TOP are the files
# beside the rooms; a folder without that row has none.
TOP = ""
ROOMS = {
    "format": {
        "codec": [],
        "model": ["codec"],
        "array": ["codec", "model"],
        "image": ["codec"],
        "table": [],
        "csv": ["codec", "table"],
        "tfrecord": ["codec", "image"],
        "webdataset": ["codec", "array", "image"],
        "parquet": ["codec", "image", "table"],
        "tensorboard": ["codec"],
        "hdf5": ["codec", "model"],
        "keras": ["codec", "model", "hdf5"],
        "torch": ["codec", "model"],
        "safetensors": ["codec", "model", "torch"],
        "tensorflow": ["codec", "model"],
        "onnx": ["codec", "model"],
        TOP: ["codec", "model", "array", "image", "table", "csv", "tfrecord", "webdataset", "parquet", "tensorboard",
              "hdf5", "keras", "torch", "safetensors", "tensorflow", "onnx"],
    },
    "train": {
        "storage": [],
        "log": [],
        "session": [],
        "group": ["log", "session"],
        "cluster": ["session", "group"],
        "ps": ["log", "session", "group", "cluster"],
        "checkpoint": ["storage", "session"],
        "engines": ["session", "group", "cluster", "ps"],
        "fit": ["log", "session", "checkpoint"],  # and none of the engines: session/engine.h is all it knows
        "run": ["storage", "log", "checkpoint", "fit"],
        "trainer": ["storage", "log", "session", "cluster", "checkpoint", "fit", "run"],
        "bench": ["session"],
        "recipe": ["storage"],  # else the public headers, as a program sees them
    },
}

# Include lines between rooms that point upwards all the same, as (file, header):
# why. Each is a debt: one that is paid must leave this table.
EXCEPTIONS = {
}

# Which folder implements include/manta/NAME.h. The umbrella include/manta.h
# is everyone's.
OWNER = {
    "status": "base",
    "array": "base",
    "version": "base",
    "option": "base",
    "log": "base",
    "comm": "comm",
    "actor": "task",
    "context": "task",
    "failure": "task",
    "map": "task",
    "object": "task",
    "placement": "task",
    "pool": "task",
    "queue": "task",
    "stream": "task",
    "task": "task",
    "value": "task",
    "node": "task",
    "nursery": "task",
    "packed": "task",
    "code": "task",
    "watch": "task",
    "tensor": "tensor",
    "op": "nn",
    "layer": "nn",
    "model": "nn",
    "loss": "nn",
    "optimizer": "nn",
    "data": "data",
    "data_file": "format",
    "table": "format",
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
    "recipe": "train",
    # For the program alone; not in manta.h.
    "tool_text": "base",
    "tool_png": "format",
    "tool_bench": "train",
    "tool_launch": "launch",
}

# Headers of libraries, and of our own what is behind others, and the only folders
# that may know of them.
LIBRARY = {
    "os/futex.h": ["os"],  # whoever sleeps on a word does it by os/eventcount.h
    "linux/futex.h": ["os"],
    "cuda": ["gpu"],
    "oneapi/": ["tensor"],
    "dnnl": ["tensor"],
    "zlib.h": ["format"],
    "libdeflate.h": ["format"],
    "zstd.h": ["format"],
    "snappy-c.h": ["format"],
    "png.h": ["format"],
    "jpeglib.h": ["format"],
    "jerror.h": ["format"],
    "curl/": ["web"],
    "openssl/": ["net"],
    "cairo": ["cli"],
    "jansson.h": ["web", "format", "train", "launch", "cli", "dash"],
    "sqlite3.h": ["train"],
}

# Processes are started, watched and waited for by os/spawner.h and os/descendants.h. The
# files outside os/ that make such a call all the same, and why.
PROCESSES = {
    "src/comm/shm.c": "watches the other ranks, which somebody else has started",
    "src/task/daemon_guests.c": "watches a program that joins, which nobody here has started",
    "src/task/runtime.c": "watches the daemon of its node, which the keeper has started",
    "src/task/node_query.c": "watches the daemon of a node that it stops",
    "src/cli/cmd_ps.c": "runs a debugger, which is another program, and sees no header of os/",
}
PROCESS_CALL = re.compile(r"(?<![\w.>])(?:os->)?(fork|fork_quiet|vfork|clone|clone3|posix_spawnp?|wait|wait3|wait4|"
                          r"waitid|waitpid|pidfd_open|proc_pidfd_open(?!\(getpid\(\)))\(")
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"', re.S)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def includes(path):
    """(line number, '<' or '"', name) of every include line of a file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    for m in INCLUDE.finditer(text):
        yield text.count("\n", 0, m.start(2)) + 1, m.group(1), m.group(2)


def process_calls(path):
    """(line number, name) of every call that starts a process, watches one or waits for one."""
    text = NOT_CODE.sub(lambda m: "\n" * m.group().count("\n"), path.read_text(encoding="utf-8", errors="replace"))
    for m in PROCESS_CALL.finditer(text):
        yield text.count("\n", 0, m.start()) + 1, m.group(1)


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


def room_violation(folder, room, name):
    """Why a file of a room of `folder` may not include `name` of the same folder; None when it may."""
    rooms, parts = ROOMS[folder], name.split("/")
    target = parts[1] if len(parts) > 2 else TOP
    if target == room or target in rooms[room]:
        return None
    if target not in rooms:
        return f"{folder}/{target}/ is no room of {folder}/" if target else f"{folder}/ has no files beside its rooms"
    here = f"{folder}/{room}/" if room else f"the top of {folder}/"
    there = f"{folder}/{target}/" if target else f"the top of {folder}/"
    return f"{here} may not see {there}"


def violation(folder, quote, name, own_folder):
    """Why a file of `folder` may not include `name`; None when it may."""
    allowed = [folder] + SEES.get(folder, []) + PARTS.get(folder, [])
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
        rooms, inside = ROOMS.get(folder, {TOP: []}), path.relative_to(root / "src" / folder).parts[:-1]
        room = inside[0] if inside else TOP
        if room not in rooms or len(inside) > 1:
            found.append(f"{path.relative_to(root)}: lies in no room that ROOMS of tools/check_includes.py names")
            return
        for line, quote, name in includes(path):
            why = violation(folder, quote, name, path.parent)
            if not why and folder in ROOMS and name.startswith(folder + "/") and \
                    (str(path.relative_to(root)), name) not in EXCEPTIONS:
                why = room_violation(folder, room, name)
            if why:
                found.append(f"{path.relative_to(root)}:{line}: {why}")
        if folder != "os" and str(path.relative_to(root)) not in PROCESSES:
            found.extend(f"{path.relative_to(root)}:{line}: {call}() is for os/ alone; see os/spawner.h"
                         for line, call in process_calls(path))

    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        if folder.name not in SEES and folder.name not in PROGRAMS and folder.name not in PARTS:
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


def unneeded(root):
    """Rows of the tables that stand for nothing under root, one sentence each."""
    found = [f"OWNER: there is no include/manta/{stem}.h" for stem in OWNER
             if not (root / "include" / "manta" / f"{stem}.h").is_file()]
    for name, header in EXCEPTIONS:
        path = root / name
        if not path.is_file() or header not in [n for _, _, n in includes(path)]:
            found.append(f"EXCEPTIONS: {name} does not include {header}")
        else:
            _, folder, room, *_ = path.relative_to(root).parts
            if room_violation(folder, room if room in ROOMS[folder] else TOP, header) is None:
                found.append(f"EXCEPTIONS: {name} may include {header} anyway")
    found += [f"PROCESSES: {name} makes no such call" for name in PROCESSES
              if not (root / name).is_file() or not any(process_calls(root / name))]
    for folder, rooms in ROOMS.items():
        lines = {room: set() for room in rooms}
        for path in sources(root / "src" / folder):
            inside = path.relative_to(root / "src" / folder).parts[:-1]
            lines.get(inside[0] if inside else TOP, set()).update(
                n.split("/")[1] if n.count("/") > 1 else TOP
                for _, _, n in includes(path) if n.startswith(folder + "/"))
        for room, sees in rooms.items():
            if room and not (root / "src" / folder / room).is_dir():
                found.append(f"ROOMS: there is no src/{folder}/{room}")
            elif room:
                found += [f"ROOMS: {folder}/{room}/ sees nothing of {folder}/{seen}/"
                          for seen in sees if seen not in lines[room]]
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found = check(root) + unneeded(root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
