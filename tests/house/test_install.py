"""`cmake --install` gives a tree that a user can build against, and move."""
import os
import pathlib
import tempfile
import unittest

from support import BUILD, ROOT, run

PROGRAM = r"""
#include <manta.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    manta_dtype t = MANTA_DTYPE_F32;
    if (manta_dtype_parse("bfloat16", &t) != MANTA_OK) return 1;
    if (manta_dtype_parse("no such type", &t) != MANTA_EINVAL) return 2;
    if (strcmp(manta_version(), MANTA_VERSION_TEXT) != 0) return 3;
    printf("%s %zu %s\n", manta_dtype_name(t), manta_dtype_size(t), manta_error_text());
    return 0;
}
"""

CMAKELISTS = """
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(manta 0.2 REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE manta::manta)
"""


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.home = pathlib.Path(cls.scratch.name)
        first = cls.home / "first"
        done = run("cmake", "--install", BUILD, "--prefix", first)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.prefix = cls.home / "moved"
        first.rename(cls.prefix)                # nothing may remember where it was installed
        cls.user = cls.home / "user"
        cls.user.mkdir()
        (cls.user / "user.c").write_text(PROGRAM)
        (cls.user / "CMakeLists.txt").write_text(CMAKELISTS)
        cls.lib = next(cls.prefix.rglob("libmanta.so")).parent

    def must(self, *command, **kwargs):
        done = run(*command, **kwargs)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def check_user(self, program, env=None):
        out = self.must(program, env={**os.environ, **(env or {})})
        self.assertTrue(out.startswith("bfloat16 2 "), out)
        self.assertIn("no such type", out)

    def test_pkg_config(self):
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.lib / "pkgconfig")}
        flags = self.must("pkg-config", "--cflags", "--libs", "manta", env=env).split()
        self.must("cc", "-std=c11", "-Wall", "-Werror", self.user / "user.c", "-o", self.user / "by-pkg-config",
                  *flags)
        self.check_user(self.user / "by-pkg-config", {"LD_LIBRARY_PATH": str(self.lib)})
        version = self.must("pkg-config", "--modversion", "manta", env=env).strip()
        self.assertIn(f'"{version}"', (ROOT / "include" / "manta" / "version.h").read_text())

    def test_cmake_package(self):
        build = self.user / "build"
        self.must("cmake", "-S", self.user, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.must("cmake", "--build", build)
        self.check_user(build / "user")

    def test_cmake_package_refuses_another_minor(self):
        for minor in ("0.1", "0.3"):
            with self.subTest(minor):
                self.refuses(minor)

    def refuses(self, other_minor):
        other = self.home / f"other-{other_minor}"
        other.mkdir()
        (other / "CMakeLists.txt").write_text(CMAKELISTS.replace("manta 0.2", f"manta {other_minor}"))
        (other / "user.c").write_text(PROGRAM)
        done = run("cmake", "-S", other, "-B", other / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.assertNotEqual(done.returncode, 0)

    def test_a_program_asks_for_this_minor(self):
        build = self.user / "named"
        self.must("cmake", "-S", self.user, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.must("cmake", "--build", build)
        self.assertIn("[libmanta.so.0.2]", self.must("readelf", "-d", build / "user"))

    def test_headers_are_the_public_ones(self):
        def names(folder):
            return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
        self.assertEqual(names(self.prefix / "include"), names(ROOT / "include"))

    def test_data_comes_along(self):
        here = self.prefix / "share" / "manta" / "data" / "mnist"
        self.assertEqual(sorted(p.name for p in here.iterdir()), sorted(p.name for p in (ROOT / "data/mnist").iterdir()))

    def test_program_runs_from_the_moved_tree(self):
        program = self.prefix / "bin" / "manta"
        self.assertTrue(program.is_file(), "the program is not installed")
        self.assertIn(" 0.2.0", self.must(program, "--version", env={"PATH": "/usr/bin:/bin", "HOME": str(self.home)}))

    def test_program_finds_its_data(self):
        program = self.prefix / "bin" / "manta"
        self.assertTrue(program.is_file(), "the program is not installed")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home)}     # no MANTA_DATA, no cache
        out = self.must(program, "evaluate", "mlp", "--data", "mnist:test", "--json", env=env)
        self.assertIn('"result"', out)

    def test_man_pages_come_along(self):
        pages = sorted(p.name for p in (ROOT / "docs" / "man").glob("*.1"))
        self.assertTrue(pages, "docs/man holds no page")
        self.assertEqual(pages, sorted(p.name for p in (self.prefix / "share" / "man" / "man1").iterdir()))


if __name__ == "__main__":
    unittest.main()
