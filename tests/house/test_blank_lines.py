"""A blank line follows the declarations at the top of a function, and the script that says so can tell."""
import unittest

from support import ROOT, tracked
import check_blank_lines


def missing(*body):
    """Lines of a function, counted from 1, before which a blank one is missing."""
    return [line - 2 for line in check_blank_lines.missing("\n".join(["void f(void)", "{", *body, "}", ""]))]


class BlankLines(unittest.TestCase):
    def test_the_repository_is_clean(self):
        files = tracked("*.c", "*.h")
        self.assertGreater(len(files), 500)
        self.assertEqual([line.replace(f"{ROOT}/", "") for line in check_blank_lines.check(files)], [])

    def test_one_is_missing(self):
        self.assertEqual(missing("    int n = 0;", "    g(n);"), [2])
        self.assertEqual(missing("    int n = 0;", "    /* why */", "    g(n);"), [2])
        self.assertEqual(missing("    int n;", "    (void)n;", "    g();"), [3])

    def test_none_is_missing(self):
        self.assertEqual(missing("    int n = 0;", "", "    g(n);"), [])
        self.assertEqual(missing("    int n = 0;"), [])
        self.assertEqual(missing("    g();", "    int n = 0;", "    h(n);"), [])
        self.assertEqual(missing("    int n;", "    (void)n;", "", "    g();"), [])
        self.assertEqual(missing("    int n;", "", "    (void)n;", "    g();"), [])

    def test_what_a_declaration_is(self):
        for declaration in ("unsigned n;", "const struct stat *s = g();", "char a[3], *b;", "int (*g)(void) = h;", "VEC(int) v = {0};",
                            "_Alignas(16) static char a[4];", "static const struct {", "enum { A = 1 };", 'const char *t = "a;{";',
                            "int n = 3; /* { */", "manta_status st = g(1,", "char *const *a = b;"):
            rest = {"static const struct {": ["        int a;", "    } rows[] = {{1}, {2}};"], "manta_status st = g(1,": ["                         2);"]}
            lines = ["    " + declaration, *rest.get(declaration, [])]
            self.assertEqual(missing(*lines, "    g();"), [len(lines) + 1], declaration)

    def test_what_none_is(self):
        for statement in ("return n;", "g(n);", "TRY(g(n));", "n = 3;", "*n = 3;", "goto out;", "a->b = c;", "for (;;) {}", "n++;"):
            self.assertEqual(missing("    " + statement, "    g();"), [], statement)

    def test_comments_and_several_lines(self):
        self.assertEqual(missing("    int a; /* one", "              that goes on */", "    /* of b */", "    int b = {", "        1};", "    g();"), [6])
        self.assertEqual(missing("    int a;", "#ifdef X", "    g();", "#endif"), [])

    def test_only_functions_are_looked_at(self):
        text = "static const int table[] =\n{\n    int n;\n    g();\n};\nstruct s {\n    int n;\n};\n"
        self.assertEqual(list(check_blank_lines.missing(text)), [])


if __name__ == "__main__":
    unittest.main()
