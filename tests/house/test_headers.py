"""Every header compiles alone; the public ones also as C++ and as strict C11."""
import concurrent.futures
import os
import pathlib
import re
import sysconfig
import tempfile
import unittest

from support import ROOT, run

WARN = ["-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Wno-unused-function", "-Wno-unused-const-variable",
        "-Werror", f"-I{ROOT}/include"]
C = ["gcc", "-std=c17", "-x", "c", "-D_GNU_SOURCE", f"-I{ROOT}/src", "-Wstrict-prototypes", *WARN]
STRICT = ["gcc", "-std=c11", "-x", "c", "-pedantic", *WARN]
CXX = ["g++", "-std=c++11", "-x", "c++", "-pedantic", *WARN]


def language(header):
    """The flags of a header of src/python, which sees the headers of Python."""
    if header.parent.name != "python":
        return []
    return ["-DPy_LIMITED_API=0x030B0000", "-isystem", sysconfig.get_path("include")]


def instruction_set(header):
    """The flags a header named after an instruction set is compiled with, as cmake/ does."""
    if header.stem.endswith("_avx2"):
        return ["-mavx2", "-mfma", "-mf16c"]
    if header.stem.endswith("_avx512"):
        return ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c"]
    return []


class Headers(unittest.TestCase):
    def compile(self, command, headers):
        self.assertTrue(headers)
        with tempfile.TemporaryDirectory() as folder, \
                concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            # Not the header itself: a file of macros alone would be an empty translation unit.
            unit = pathlib.Path(folder) / "unit.c"
            unit.write_text("extern int something;\n")
            runs = [(h, pool.submit(run, *command, *instruction_set(h), *language(h), "-include", h, unit)) for h in headers]
            concurrent.futures.wait([r for _, r in runs])
        errors = [done.result().stderr for _, done in runs if done.result().returncode]
        self.assertFalse(errors, "\n" + "\n".join(errors))

    def public(self):
        return sorted((ROOT / "include").rglob("*.h"))

    def test_each_compiles_alone(self):
        self.compile(C, sorted((ROOT / "src").rglob("*.h")) + self.public())

    def test_public_ones_are_plain_c11(self):
        self.compile(STRICT, self.public())

    def test_public_ones_are_cxx(self):
        self.compile(CXX, self.public())

    def test_guards_carry_the_path(self):
        wrong = []
        for header in sorted((ROOT / "src").rglob("*.h")) + self.public():
            base = ROOT / ("src" if (ROOT / "src") in header.parents else "include")
            guard = str(header.relative_to(base)).upper().replace("/", "_").replace(".", "_").replace("-", "_")
            if f"#ifndef {guard}\n#define {guard}\n" not in header.read_text():
                wrong.append(f"{header.relative_to(ROOT)}: no guard {guard}")
        self.assertEqual(wrong, [])

    def test_the_umbrella_names_every_public_header(self):
        umbrella = (ROOT / "include" / "manta.h").read_text()
        for header in sorted((ROOT / "include" / "manta").glob("*.h")):
            if not header.name.startswith("tool_"):
                self.assertIn(f"#include <manta/{header.name}>\n", umbrella)

    def test_what_is_for_the_program_alone_says_so(self):
        tools = sorted((ROOT / "include" / "manta").glob("tool_*.h"))
        self.assertTrue(tools)
        self.assertEqual([h.name for h in tools if "For the program `manta` alone" not in h.read_text()], [])
        done = run("gcc", "-std=c11", "-M", "-x", "c", f"-I{ROOT}/include", ROOT / "include" / "manta.h")
        self.assertEqual((done.returncode, [w for w in done.stdout.split() if "/tool_" in w]), (0, []))
        # What only src/cli calls of the library, and no program of a user's would, is in one of them.
        names = {n for h in (ROOT / "include" / "manta").glob("*.h") if h not in tools
                 for n in re.findall(r"\bmanta_(?:png|shell|bench|block)_\w+", h.read_text())}
        self.assertEqual(sorted(names), [])

    def test_public_names_carry_the_prefix(self):
        # What a user's program sees in the preprocessor must not collide with its own names.
        for header in sorted((ROOT / "include" / "manta").glob("*.h")):
            done = run("gcc", "-std=c11", "-E", "-dD", "-x", "c", f"-I{ROOT}/include", header)
            ours = False
            for line in done.stdout.splitlines():
                if line.startswith("# "):
                    ours = f"{ROOT}/include/manta" in line
                elif ours and line.startswith("#define "):
                    name = line.split()[1].split("(")[0]
                    self.assertTrue(name.startswith(("MANTA_", "manta_")), f"{header.name} defines {name}")


if __name__ == "__main__":
    unittest.main()
