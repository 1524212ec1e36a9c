"""libmanta.so: what it exports, what it is called, what it needs."""
import re
import unittest

from support import BUILD, ROOT, run

LIBRARY = BUILD / "libmanta.so"


def declared():
    """Functions that the public headers declare with MANTA_API."""
    names = set()
    for header in (ROOT / "include" / "manta").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        names |= set(re.findall(r"MANTA_API\b[^;{(]*?\b(manta_\w+)\s*(?:\(|\[|;)", text))
    return names


def exported():
    done = run("nm", "-D", "--defined-only", LIBRARY)
    assert done.returncode == 0, done.stderr
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if line.split()[1] != "A"}


class Library(unittest.TestCase):
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
        self.assertIn(f"soname: [libmanta.so.{number['MAJOR']}]", dynamic)

    def test_it_needs_no_gpu_library(self):
        needed = re.findall(r"NEEDED.*\[(.*?)\]", run("readelf", "-d", LIBRARY).stdout)
        self.assertTrue(needed)
        self.assertFalse([n for n in needed if re.match(r"lib(cuda|cublas|cudnn|nccl|OpenCL)", n)], needed)

    def test_no_path_of_the_source_tree_is_compiled_in(self):
        # Assertions name files; ours must do so relative to the source tree.
        self.assertNotIn(str(ROOT).encode(), LIBRARY.resolve().read_bytes())


if __name__ == "__main__":
    unittest.main()
