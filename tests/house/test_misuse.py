"""Every exported function refuses an argument that cannot be, and names it.

misuse.py writes the calls from the headers, so that a new function is among them from its first day; null_allowed.txt
lists the pointers that may be NULL. What a case came to is read from the lines of the program (misuse_fixture.c)."""
import collections
import fnmatch
import os
import pathlib
import tempfile
import unittest

import misuse
from support import BUILD, ROOT, run

HERE = pathlib.Path(__file__).resolve().parent
ALLOWED = [line.split() for line in (HERE / "null_allowed.txt").read_text().splitlines()
           if line and not line.startswith("#")]


# Numbers that may be negative, and why.
MAY_BE_NEGATIVE = {
    "manta_shape_text ndim",            # it is how a refusal shows the view that was refused
    "manta_dataset_repeat times",       # -1 is MANTA_FOREVER_COUNT
    "manta_events_scalar step", "manta_events_histogram step", "manta_events_text step", "manta_events_image step",
    "manta_error_origin rank",          # of a process that has none
    "manta_report_callback checkpoint_every",   # -1 is MANTA_NONE
}


def may_be_null(function, argument):
    return any(fnmatch.fnmatch(function, f) and fnmatch.fnmatch(argument, a) for f, a in ALLOWED)


def outcomes():
    """(function, argument, what was passed, [words of the outcome]) of each case."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "cases.c")
        source.write_text(misuse.program())
        built = run("cc", "-std=gnu17", "-w", f"-I{ROOT}/include", f"-I{HERE}", source, HERE / "misuse_fixture.c", "-o",
                    f"{folder}/misuse", f"-L{BUILD}", "-lmanta", f"-Wl,-rpath,{BUILD}")
        if built.returncode:
            raise AssertionError(built.stderr)
        done = run(f"{folder}/misuse", cwd=folder, env={**os.environ, "TMPDIR": folder, "MANTA_RUNS": folder})
        if done.returncode:
            raise AssertionError(done.stderr)
    return [(f, a, v, rest) for f, a, v, *rest in (line.split() for line in done.stdout.splitlines())]


class Misuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.all = outcomes()

    def test_every_function_with_a_pointer_is_called(self):
        called = {f for f, *_ in self.all}
        wanted = {name for _, name, _, parameters in misuse.declarations() if any(p[2] for p in parameters)}
        self.assertGreater(len(wanted), 350)
        self.assertEqual(wanted - called, set())

    def test_no_call_ends_the_process(self):
        self.assertEqual([" ".join([f, a, v, *rest]) for f, a, v, rest in self.all
                          if rest[0] not in ("refused", "recorded", "accepted")], [])

    def test_a_null_is_refused_by_name(self):
        """MANTA_EINVAL, or where no status is returned an error recorded: "manta_fit: s is NULL"."""
        wrong = []
        for f, a, v, rest in self.all:
            if v != "NULL" or may_be_null(f, a):
                continue
            text = " ".join(rest)
            if f"{f}: {a} is NULL" not in text or " invalid " not in f" {text} " or rest[0] == "accepted":
                wrong.append(f"{f} {a}: {text}")
        self.assertEqual(wrong, [])

    def test_what_may_be_null_is_not_refused_for_that(self):
        self.assertEqual([f"{f} {a}" for f, a, v, rest in self.all
                          if v == "NULL" and may_be_null(f, a) and f"{f}: {a} is NULL" in " ".join(rest)], [])

    def test_the_list_names_what_is_there(self):
        there = {(f, a) for f, a, v, _ in self.all if v == "NULL"}
        self.assertEqual([f"{f} {a}" for f, a in ALLOWED
                          if not any(fnmatch.fnmatch(x, f) and fnmatch.fnmatch(y, a) for x, y in there)], [])

    def test_a_negative_count_is_refused(self):
        """A place in a list that is none has an answer of its own: NULL, as behind the end."""
        taken = {f"{f} {a}" for f, a, v, rest in self.all if v == "-1" and rest[0] == "accepted" and a != "i"}
        self.assertEqual(taken, MAY_BE_NEGATIVE)

    def test_a_number_that_no_constant_has_is_refused(self):
        """By every function that returns a status; what only tells about a number has a value for none ("?", 0)."""
        returns = {name: kind for _, name, kind, _ in misuse.declarations()}
        self.assertEqual([f"{f} {a}: {' '.join(rest)}" for f, a, v, rest in self.all
                          if v == "55" and returns[f] == "manta_status" and rest[0] == "accepted"], [])


if __name__ == "__main__":
    unittest.main()
