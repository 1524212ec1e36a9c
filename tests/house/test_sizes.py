"""Sizes at which a folder changes its ways: one header names them, and a test stands beside each."""
import re
import unittest

from support import ROOT, tracked

HEADERS = [path for path in tracked("src/*.h") if path.name == "sizes.h"]


def constants(text):
    """The names that a header of sizes defines."""
    return set(re.findall(r"^(?:#define |    )([A-Z]\w+)\b(?: *=|[ \t]+\S)", text, re.M))


class Sizes(unittest.TestCase):
    def test_each_has_a_test(self):
        """In the test of sizes of its folder, or in that of programs on the runtime."""
        self.assertGreaterEqual(len(HEADERS), 5)
        wrong = []
        for header in HEADERS:
            folder = header.relative_to(ROOT).parts[1]
            tests = [ROOT / "tests" / "unit" / folder / "sizes_test.c", ROOT / "tests" / "runtime" / "sizes.c"]
            known = set(re.findall(r"\w+", "".join(p.read_text() for p in tests if p.is_file())))
            names = constants(header.read_text())
            self.assertTrue(names, header)
            wrong += [f"{header.relative_to(ROOT)}: {name}" for name in sorted(names - known)]
        self.assertEqual(wrong, [])

    def test_one_header_for_a_folder(self):
        folders = [header.relative_to(ROOT).parts[1] for header in HEADERS]
        self.assertEqual(sorted(folders), sorted(set(folders)))

    def test_what_a_constant_is(self):
        text = "#ifndef A_SIZES_H\n#define A_SIZES_H\n#define ONE ((size_t)1 << 4)\nenum {\n    TWO = 2,\n    /* three.c: x. */\n    THREE_OF = 3,\n};\n#endif\n"
        self.assertEqual(constants(text), {"ONE", "TWO", "THREE_OF"})


if __name__ == "__main__":
    unittest.main()
