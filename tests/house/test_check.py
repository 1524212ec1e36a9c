"""The counting of ./check: it must not call a crash a success."""
import contextlib
import io
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

from support import ROOT, run
import check


def junit(*cases):
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name) / "report.xml"
    path.write_text("<testsuite>" + "".join(
        f'<testcase name="{name}" status="{status}"><system-out>{output}</system-out></testcase>'
        for name, status, output in cases) + "</testsuite>")
    with folder:
        return check.junit_counts(path)


GOOD = "[==========] Running 3 test(s).\n[       OK ] a\n[  PASSED  ] 3 test(s).\n"
MIXED = ("[==========] Running 3 test(s).\n[       OK ] a\n[  FAILED  ] b\n[  SKIPPED ] c\n[  PASSED  ] 1 test(s).\n"
         "[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] c\n"
         "[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] b\n 1 FAILED TEST(S)\n")
NONE = "[==========] Running 0 test(s).\n"
CRASH = "[==========] Running 9 test(s).\n[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n"


class Counts(unittest.TestCase):
    def test_cmocka_numbers_are_added(self):
        self.assertEqual(junit(("x", "run", GOOD), ("y", "run", GOOD + GOOD)), (9, 0, 0, []))

    def test_failed_and_skipped(self):
        self.assertEqual(junit(("x", "fail", MIXED)), (1, 1, 1, [("x", MIXED)]))

    def test_a_crash_is_a_failure(self):
        self.assertEqual(junit(("x", "fail", CRASH)), (1, 1, 0, [("x", CRASH)]))

    def test_a_report_after_success_is_a_failure(self):
        # A leak is found when all tests have passed.
        self.assertEqual(junit(("x", "fail", GOOD + "LeakSanitizer")), (3, 1, 0, [("x", GOOD + "LeakSanitizer")]))

    def test_no_test_at_all_is_a_failure(self):
        self.assertEqual(junit(("x", "run", NONE)), (0, 1, 0, [("x", NONE)]))

    def test_a_program_without_cmocka_counts_once(self):
        self.assertEqual(junit(("x", "run", "fine"), ("y", "fail", "")), (1, 1, 0, [("y", "")]))

    def test_pytest_names_what_failed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.xml"
            path.write_text('<testsuites><testsuite>'
                            '<testcase classname="tests.python.test_a" name="good"/>'
                            '<testcase classname="tests.python.test_a" name="left"><skipped/></testcase>'
                            '<testcase classname="tests.python.test_a" name="bad"><failure message="m">assert 1 == 2</failure>'
                            '<system-out>what it printed</system-out></testcase>'
                            '<testcase classname="tests.python.test_b" name="begun"><error>no fixture</error></testcase>'
                            '</testsuite></testsuites>')
            self.assertEqual(check.pytest_counts(path), (1, 2, 1, [
                ("tests.python.test_a.bad", "what it printed\nassert 1 == 2"), ("tests.python.test_b.begun", "no fixture")]))

    def test_a_test_that_hung_is_named_by_its_stack(self):
        log = ('....Timeout (0:10:00)!\nThread 0x1 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 1 in wait\n'
               '\nThread 0x2 (most recent call first):\n  File "/x/tests/python/conftest.py", line 40 in until\n'
               '  File "/x/tests/python/test_a.py", line 7 in helper\n  File "/x/tests/python/test_a.py", line 9 in test_one\n'
               '  File "/x/site-packages/pluggy/_callers.py", line 3 in test_nothing\n'
               '.....Timeout (0:10:00)!\nThread 0x2 (most recent call first):\n  File "/x/tests/python/test_b.py", line 2 in test_two\n')
        self.assertEqual(check.tests_that_hung(log), ["test_a.test_one", "test_b.test_two"])
        self.assertEqual(check.tests_that_hung('  File "/x/test_a.py", line 9 in test_one\n'), [])

    def test_unittest(self):
        self.assertEqual(check.unittest_counts("Ran 5 tests in 1s\n\nOK (skipped=1)\n"), (4, 0, 1))
        self.assertEqual(check.unittest_counts("Ran 5 tests in 1s\n\nFAILED (failures=1, errors=2)\n"), (2, 3, 0))
        self.assertIsNone(check.unittest_counts("Traceback\n"))

    def test_every_simulation_is_run_with_more_seeds(self):
        unit = ROOT / "tests" / "unit"
        simulated = {f"{path.parent.name}/{path.name[:-len('_test.c')]}" for path in unit.glob("*/*_test.c")
                     if '#include "sim.h"' in path.read_text()}
        self.assertGreaterEqual(len(simulated), 5)
        self.assertEqual([name for name in sorted(simulated) if not re.search(check.SIMULATIONS, name)], [])

    def test_soak(self):
        self.assertEqual(check.soak_counts("FAILED 7: the value\nnode\nsmallest\n12 passed, 1 failed\n"), (12, 1, ["7"]))
        self.assertEqual(check.soak_counts("12 passed, 0 failed\n"), (12, 0, []))
        self.assertIsNone(check.soak_counts("FAILED 7: the value\nnode\n"))
        self.assertIsNone(check.soak_counts("1 passed, 0 failed\nand then it ended"))

    def test_every_check_runs_generated_programs(self):
        self.assertIn(check.stage_soak, check.ALWAYS)

    def test_an_unknown_stage_is_wrong_usage(self):
        done = run("python3", ROOT / "tools" / "check.py", "no-such-stage")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no stage is called no-such-stage", done.stderr)


PYTEST = """
import pathlib, sys
report, how = next(a.partition("=")[2] for a in sys.argv if a.startswith("--junitxml=")), sys.argv[-1]
print("the output of", how)
if how == "dies":
    sys.exit(3)
failure = "<failure>assert 1 == 2</failure>" if how == "fails" else ""
pathlib.Path(report).write_text(f'<testsuite><testcase classname="test_a" name="test_one">{failure}</testcase></testsuite>')
sys.exit(how == "fails")
"""


class Pytest(unittest.TestCase):
    """Several runs of pytest in one stage: what is shown is of the one that failed, whatever ran after it."""

    def run_stage(self, *hows):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "pytest"
            program.write_text(f"#!{sys.executable}\n{PYTEST}")
            program.chmod(0o755)
            with mock.patch.object(check, "LOGS", pathlib.Path(folder)):
                stage = check.Stage("python", None)
                for how in hows:
                    check.run_pytest(stage, program, how, how, env={}, timeout_s=240)
                stage.log.close()
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown), mock.patch.object(check, "ROOT", pathlib.Path(folder)):
                check.show_failure(stage)
        return stage, shown.getvalue()

    def test_a_test_that_failed_in_the_first_run(self):
        stage, shown = self.run_stage("fails", "passes")
        self.assertEqual((stage.passed, stage.failed, stage.notes), (1, 1, ["failed: test_a.test_one"]))
        self.assertIn("test_a.test_one", shown)
        self.assertIn("assert 1 == 2", shown)

    def test_a_first_run_that_died(self):
        stage, shown = self.run_stage("dies", "passes")
        self.assertEqual((stage.passed, stage.failed, stage.notes), (1, 1, ["dies: pytest ended with status 3"]))
        self.assertIn("the output of dies", shown)
        self.assertNotIn("the output of passes", shown)


if __name__ == "__main__":
    unittest.main()
