"""A comment names its subject: it is read alone, and begins with nothing that only its neighbour explains."""
import re
import unittest

from support import ROOT, tracked

LEANS = re.compile(r"(?:/\*+|//)[\s*]*The same\b")
GOES_ON = re.compile(r";[ \t]*/\*(?:[^*]|\*(?!/))*[,;]\s*\*/")       # behind a field or a statement


def leaning(text):
    """Numbers, from 1, of the lines at which a comment begins that needs the one before it, or goes on in the next."""
    return sorted(text.count("\n", 0, m.start()) + 1 for pattern in (LEANS, GOES_ON) for m in pattern.finditer(text))


class Comments(unittest.TestCase):
    def test_none_needs_its_neighbour(self):
        files = tracked("src/*", "include/*")
        self.assertGreater(len(files), 500)
        found = [f"{f.relative_to(ROOT)}:{n}" for f in files for n in leaning(f.read_text(errors="replace"))]
        self.assertEqual(found, [], 'comments that begin with "The same", or end with a comma: say of what they speak')

    def test_what_one_is(self):
        self.assertEqual(leaning("int f(void);\n/* The same, later. */\nint g(void); // The same\n/*\n * The same */"), [2, 3, 4])
        self.assertEqual(leaning("int a; /* the first, */\nint b; /* and the second */\nint c; /* a\n * b; */"), [1, 3])
        self.assertEqual(leaning("/* What the same does.\n * The same input makes the same bytes. */\n/* The samest */"), [])


if __name__ == "__main__":
    unittest.main()
