"""Names that others chose reach a terminal through one function alone, and the search for other ways can tell.

src/cli/print.c writes for the program; whoever else in src/ writes to standard output or error is listed here with the
reason why no foreign text can do harm there."""
import re
import unittest

from support import ROOT, tracked

WAYS = re.compile(r"\b(stdout|stderr|STDOUT_FILENO|STDERR_FILENO|v?printf|puts|putchar|putchar_unlocked|perror|psignal|"
                  r"v?dprintf|v?warnx?|v?errx?)\b(?:\s*\(|)")
CALLS = {"printf", "vprintf", "puts", "putchar", "putchar_unlocked", "perror", "psignal", "dprintf", "vdprintf",
         "warn", "vwarn", "warnx", "vwarnx", "err", "verr", "errx", "verrx"}
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"', re.S)

OTHERS = {
    "src/cli/print.c": "the one way",
    "src/cli/cli.c": "flushes and closes",
    "src/cli/progress.c": "asks how wide the terminal is",
    "src/base/block.c": "a block is made printable as it is put together",
    "src/base/log.c": "values are quoted",
    "src/base/mem.c": "a number",
    "src/train/log/rank_log.c": "a number, and a worker's descriptors",
    "src/train/log/rank_logs.c": "what the user's own workers print, as they print it",
    "src/task/worker.c": "says how its output is buffered, and flushes it",
    "src/task/output.c": "what the user's own functions print, as they print it",
    "src/task/daemon_guests.c": "what the user's own workers print, as they print it",
}


def ways_out(text):
    """(line number, word) of all that can write to standard output or error, outside comments and strings."""
    code = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for match in WAYS.finditer(code):
        word = match[1]
        called = match[0].endswith("(")
        member = re.search(r"(->|\.)\s*$", code[:match.start()])
        if word in CALLS and (not called or member):
            continue
        if code[:match.start()].endswith("fflush("):  # what was written before, by whoever may
            continue
        yield code.count("\n", 0, match.start()) + 1, word


class Printing(unittest.TestCase):
    def test_nothing_else_prints(self):
        files = tracked("src/*.c", "src/*.h", "src/*.inc")
        self.assertGreater(len(files), 400)
        found = {}
        for path in files:
            for line, word in ways_out(path.read_text()):
                found.setdefault(str(path.relative_to(ROOT)), []).append((line, word))
        self.assertEqual({name: words for name, words in found.items() if name not in OTHERS}, {})
        # Descriptors by their number are known to whoever is listed, too: a row that is not needed goes.
        silent = [name for name in OTHERS if name not in found and not
                  re.search(r"\bwrite\((2|stream \+ 1),", (ROOT / name).read_text())]
        self.assertEqual(silent, [])

    def test_the_program_looks_only(self):
        """Where progress.c names standard output, it writes nothing."""
        text = (ROOT / "src/cli/progress.c").read_text()
        for line, word in ways_out(text):
            self.assertRegex(text.splitlines()[line - 1], r"isatty\(STDOUT_FILENO\)|ioctl\(STDOUT_FILENO, TIOCGWINSZ")

    def test_the_program_keeps_no_other_way(self):
        """Escape sequences are in formats, where print.c lets them be: no %s is told one, no byte is written by hand."""
        for path in tracked("src/cli/*.c"):
            if path.name == "print.c":
                continue
            text = path.read_text()
            self.assertNotRegex(text, r"\bwrite\([12],", path.name)
            self.assertNotRegex(text, r'f(?:open|dopen|reopen)\("/dev/(tty|std|fd)', path.name)

    def test_what_is_found(self):
        for code in ('printf("%s", x);', "puts(x);", "putchar(c);", "fprintf(stderr, x);", "fputs(x, stdout);", "perror(x);",
                     "write(STDERR_FILENO, x, n);", "vprintf(f, a);", "fwrite(x, 1, n, stdout);", "dprintf(1, x);"):
            self.assertEqual(len(list(ways_out(code))), 1, code)

    def test_what_is_none(self):
        for code in ("/* stdout */", '"stdout"', "snprintf(a, n, x);", "fprintf(f, x);", "buf_printf(&b, x);", "int err = 0;",
                     "manta_fail(e, x);", "print_out(x);", "o->warn(x);", "fflush(stdout);", "// printf(x)"):
            self.assertEqual(list(ways_out(code)), [], code)


if __name__ == "__main__":
    unittest.main()
