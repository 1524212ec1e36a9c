"""libmanta.so: what it exports, what it is called, what it needs."""
import ctypes
import pathlib
import re
import unittest

from support import BUILD, ROOT, run
import check_includes

LIBRARY = BUILD / "libmanta.so"


def declared_in(header):
    """Functions that a public header declares with MANTA_API."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    return set(re.findall(r"MANTA_API\b[^;{(]*?\b(manta_\w+)\s*(?:\(|\[|;)", text))


def declared():
    """Those of all public headers."""
    return set().union(*(declared_in(h) for h in (ROOT / "include" / "manta").glob("*.h")))


def exported():
    done = run("nm", "-D", "--defined-only", LIBRARY)
    assert done.returncode == 0, done.stderr
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if line.split()[1] != "A"}


def symbols(path):
    """(names defined, names wanted) of an object file or of all those of an archive."""
    done = run("nm", "-g", path)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    return {r[-1] for r in rows if len(r) == 3}, {r[-1] for r in rows if len(r) == 2 and r[0] in "Uw"}


def upward_calls(folder):
    """'FILE: FUNCTION of ROOM' for each call of a folder's room that points upwards and is no exception."""
    built = BUILD / "CMakeFiles" / f"manta_{folder}.dir" / "src" / folder
    # What an older build has left behind has no source any more.
    files = {p.relative_to(built): symbols(p) for p in built.rglob("*.c.o")
             if (ROOT / "src" / folder / p.relative_to(built)).with_suffix("").is_file()}
    assert files, f"no object files below {built}"
    room = {name: path.parts[0] if len(path.parts) > 1 else check_includes.TOP
            for path, (defined, _) in files.items() for name in defined}
    order = list(check_includes.ROOMS[folder])
    excused = {(name, pathlib.Path(header).parts[1]) for name, header in check_includes.EXCEPTIONS}
    for path, (_, wanted) in sorted(files.items()):
        here = path.parts[0] if len(path.parts) > 1 else check_includes.TOP
        for name in sorted(n for n in wanted if n in room):
            if order.index(room[name]) > order.index(here) and \
                    (str(pathlib.Path("src", folder, path).with_suffix("")), room[name]) not in excused:
                yield f"{folder}/{path}: {name} of {room[name] or 'the top'}"


class Library(unittest.TestCase):
    def test_a_header_belongs_to_who_implements_it(self):
        where = {name: folder for folder in check_includes.SEES
                 for name in symbols(BUILD / f"libmanta_{folder}.a")[0]}
        self.assertEqual([f"{header.name}: {name} is implemented in {where.get(name)}/"
                          for header in sorted((ROOT / "include" / "manta").glob("*.h"))
                          for name in sorted(declared_in(header))
                          if where.get(name) != check_includes.OWNER[header.stem]], [])

    def test_calls_between_rooms_point_downwards(self):
        # Also those that no include line shows, because a public header declares them.
        for folder in check_includes.ROOMS:
            self.assertEqual(list(upward_calls(folder)), [])

    def test_only_our_prefix_is_exported(self):
        self.assertTrue(exported())
        self.assertEqual(sorted(n for n in exported() if not n.startswith("manta_")), [])

    def test_every_export_is_declared(self):
        self.assertEqual(sorted(exported() - declared()), [])

    def test_every_declaration_is_there(self):
        self.assertEqual(sorted(declared() - exported()), [])

    def test_name_carries_the_version(self):
        text = (ROOT / "include" / "manta" / "version.h").read_text()
        number = {k: int(v) for k, v in re.findall(r"#define MANTA_VERSION_(\w+)\s+(\d+)", text)}
        version = f"{number['MAJOR']}.{number['MINOR']}.{number['PATCH']}"
        self.assertRegex(text, rf'#define MANTA_VERSION_TEXT\s+"{re.escape(version)}"')
        self.assertEqual(LIBRARY.resolve().name, f"libmanta.so.{version}")
        dynamic = run("readelf", "-d", LIBRARY).stdout
        self.assertEqual(number["MAJOR"], 0, "from 1.0 on the name carries the major version alone (docs/abi.md)")
        self.assertIn(f"soname: [libmanta.so.{number['MAJOR']}.{number['MINOR']}]", dynamic)

    def test_it_says_its_version(self):
        library = ctypes.CDLL(str(LIBRARY))
        library.manta_version.restype = ctypes.c_char_p
        self.assertEqual(LIBRARY.resolve().name, f"libmanta.so.{library.manta_version().decode()}")

    def test_the_version_is_stated_alike(self):
        """In the changes, the newest first, and in each man page."""
        text = (ROOT / "include" / "manta" / "version.h").read_text()
        version = re.search(r'MANTA_VERSION_TEXT\s+"(.*)"', text)[1]
        self.assertEqual(re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[0], version)
        pages = sorted((ROOT / "docs" / "man").glob("*.1"))
        self.assertTrue(pages)
        self.assertEqual([p.name for p in pages if f'"Manta {version}"' not in p.read_text()], [])

    def test_it_needs_no_gpu_library(self):
        needed = re.findall(r"NEEDED.*\[(.*?)\]", run("readelf", "-d", LIBRARY).stdout)
        self.assertTrue(needed)
        self.assertFalse([n for n in needed if re.match(r"lib(cuda|cublas|cudnn|nccl|OpenCL)", n)], needed)

    def test_no_path_of_the_source_tree_is_compiled_in(self):
        # Assertions name files; ours must do so relative to the source tree.
        self.assertNotIn(str(ROOT).encode(), LIBRARY.resolve().read_bytes())


if __name__ == "__main__":
    unittest.main()
