#!/usr/bin/env python3
"""check.py - the stages of ./check.

Each stage is a function that runs commands into its own log and adds to a
tally of tests passed, failed and skipped; a stage that cannot build counts as
one failure. Numbers are those of the tests themselves: cmocka's, unittest's
and pytest's, not of the programs that hold them. Build trees are kept under
build/check, apart from those of the presets, so that a check never changes
the flags of a developer's build.
"""
import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import xml.etree.ElementTree

import check_includes
import peers

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "check"
LOGS = BUILD / "log"
VENV = ROOT / "build" / "venv"
OLD_VENV = ROOT / "build" / "venv-old"      # the oldest Keras 3
PYTHON_VENV = ROOT / "build" / "venv-python"        # what tests/python needs
CORES = len(os.sched_getaffinity(0))
TESTS_AT_ONCE = CORES + 1       # many do little but wait
SOURCE_FOLDERS = ["src", "include", "tests", "examples", "bench"]
HANGS_S = 600           # of a test of pytest: its stack is shown then, and nothing is ended
NO_WORLD = 77           # tests/hosts/world.py: there can be no namespaces here


class StageFailed(Exception):
    """Ends a stage; the failure is already counted."""


class Stage:
    """One stage's log and tally."""

    def __init__(self, name, options):
        self.name = name
        self.options = options
        self.passed = self.failed = self.skipped = 0
        self.notes = []
        self.evidence = []      # of failing tests, name and what they printed
        self.lock = threading.Lock()
        LOGS.mkdir(parents=True, exist_ok=True)
        self.path = LOGS / f"{name}.log"
        self.log = open(self.path, "w", encoding="utf-8")

    def say(self, text):
        self.log.write(text + "\n")
        self.log.flush()

    def add(self, passed=0, failed=0, skipped=0):
        with self.lock:
            self.passed += passed
            self.failed += failed
            self.skipped += skipped

    def run(self, *command, env=None, timeout_s=900, output=None):
        """Runs a command into the log; its exit status, 124 when it ran too long.

        The command gets a process group of its own, so that ending it ends
        all that it started."""
        command = [str(c) for c in command]
        self.say("$ " + " ".join(command))
        p = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output or self.log,
                             stderr=subprocess.STDOUT, env={**os.environ, **(env or {})},
                             start_new_session=True)
        try:
            return p.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.say(f"ended after {timeout_s} s")
            return 124
        finally:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()

    def must(self, *command, what, **kwargs):
        """Runs a command without which the stage makes no sense."""
        if self.run(*command, **kwargs) != 0:
            self.add(failed=1)
            self.notes.append(f"{what} failed")
            raise StageFailed


def cmocka_counts(output):
    """(passed, failed, skipped) that cmocka's summaries in a program's output state."""
    def total(word):
        return sum(int(n) for n in re.findall(r"\[ *%s *\] (\d+) test\(s\)" % word, output))
    return total("PASSED"), total("FAILED"), total("SKIPPED")


def junit_counts(path):
    """Tally of a ctest run from its JUnit file, and name and output of each failure.

    A program that ended badly counts at least one failure even when cmocka
    had nothing to say (a crash, a time-out, a sanitizer's report), and so
    does one that ran no test at all."""
    passed = failed = skipped = 0
    bad = []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        p, f, s = cmocka_counts(output)
        if case.get("status") == "run":
            if "[==========]" not in output:
                p, f, s = 1, 0, 0
            elif p + f + s == 0:
                f = 1
        else:
            p = p or len(re.findall(r"\[ *OK *\] ", output))
            f = f or 1
        if f:
            bad.append((case.get("name"), output))
        passed, failed, skipped = passed + p, failed + f, skipped + s
    return passed, failed, skipped, bad


def pytest_counts(path):
    """Tally of a pytest run from its JUnit file, and name and output of each failure."""
    passed = failed = skipped = 0
    bad = []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        wrong = [e for e in case if e.tag in ("failure", "error")]
        if wrong:
            failed += 1
            said = [e for e in case if e.tag in ("system-out", "system-err")]
            bad.append((f"{case.get('classname')}.{case.get('name')}", "\n".join(e.text or "" for e in [*said, *wrong])))
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped, bad


def unittest_counts(text):
    """(passed, failed, skipped) of `python3 -m unittest`, None when it never got to run."""
    ran = re.search(r"^Ran (\d+) tests? in", text, re.M)
    last = re.search(r"^(OK|FAILED)(?: \((.*)\))?$", text, re.M)
    if ran is None or last is None:
        return None
    counts = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", last.group(2) or "")}
    failed = counts.get("failures", 0) + counts.get("errors", 0)
    skipped = counts.get("skipped", 0)
    # One test may fail in several of its sub-tests; none may then be counted as passed below zero.
    return max(int(ran.group(1)) - failed - skipped, 0), failed, skipped


def files(*patterns):
    """Files of the repository in the source folders whose names match."""
    return sorted(p for f in SOURCE_FOLDERS for pattern in patterns for p in (ROOT / f).rglob(pattern))


def configure(stage, preset, name, *options):
    """Configures build/check/NAME from a preset with warnings as errors; returns the folder.

    Kernels for GPUs are compiled in build/check/gcc, once for all folders: nvcc takes most of a minute, whatever
    the flags of the rest are."""
    folder, kernels = BUILD / name, BUILD / "gcc" / "gpu" / "kernels.fatbin"
    if name != "gcc":
        first = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
        stage.must("cmake", "--build", first, "--target", "manta_gpu_image", what="compiling kernels for GPUs", timeout_s=1800)
    stage.must("cmake", "--preset", preset, "-B", folder, "-DMANTA_WERROR=ON", "-DMANTA_PYTHON=ON",
               f"-DMANTA_GPU_KERNELS={kernels if name != 'gcc' and kernels.is_file() else ''}",
               f"-DPython_EXECUTABLE={sys.executable}", *options, what="configuring")
    return folder


def build(stage, folder, *targets):
    """Builds, and counts the build as one test: it may have no warning."""
    stage.must("cmake", "--build", folder, "-j", CORES, *(["--target", *targets] if targets else []),
               what="the build", timeout_s=1800)
    stage.add(passed=1)


def ctest(stage, folder, *options, env=None, wrap=()):
    report = folder / "ctest.xml"
    report.unlink(missing_ok=True)
    # The sizes keep ctest from cutting the summary off a long output.
    rc = stage.run(*wrap, "ctest", "--test-dir", folder, "-j", TESTS_AT_ONCE, "--output-on-failure", "--no-tests=error",
                   "--output-junit", report, "--test-output-size-passed", 2 ** 22,
                   "--test-output-size-failed", 2 ** 22, *options,
                   env=env, timeout_s=1800)
    if not report.is_file():
        stage.add(failed=1)
        stage.notes.append("ctest ran no test")
        return
    passed, failed, skipped, bad = junit_counts(report)
    stage.add(passed, failed or (1 if rc else 0), skipped)
    for name, output in bad:
        stage.notes.append(f"failed: {name}")
        stage.evidence.append((name, output))


def tests_that_hung(text):
    """Names of the tests that pytest's log shows at work when its patience (faulthandler_timeout) was over."""
    found = []
    for dump in re.split(r"Timeout \(\d+:\d\d:\d\d\)!$", text, flags=re.M)[1:]:
        rows = re.findall(r'^  File "\S*/(test_\w+)\.py", line \d+ in (test_\w+)$', dump, re.M)
        found += [f"{module}.{function}" for module, function in rows if f"{module}.{function}" not in found]
    return found


def run_pytest(stage, python, name, *arguments, env, timeout_s, before=()):
    """Runs pytest, adds what it wrote to its JUnit file, and names the tests that failed; its exit status."""
    report = LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    begin = stage.path.stat().st_size
    rc = stage.run(*before, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={HANGS_S}",
                   f"--junitxml={report}", *arguments, env={"PYTHONDONTWRITEBYTECODE": "1", **env}, timeout_s=timeout_s)
    if rc == NO_WORLD and before:
        return rc
    passed, failed, skipped, bad = pytest_counts(report) if report.is_file() else (0, 0, 0, [])
    stage.add(passed, failed, skipped)
    for test, output in bad:
        stage.notes.append(f"failed: {test}")
        stage.evidence.append((test, output))
    if rc and not failed:
        with open(stage.path, encoding="utf-8", errors="replace") as log:
            log.seek(begin)
            text = log.read()
        stage.add(failed=1)
        stage.notes.append(f"{name}: " + ("no test was found" if rc == 5 else f"pytest ended with status {rc}"))
        stage.notes += [f"{name}: it was in {test} for more than {HANGS_S} s" for test in tests_that_hung(text)]
        stage.evidence.append((name, text))
    return rc


def stage_gcc(stage):
    """gcc, release, warnings as errors: build and unit tests"""
    folder = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
    build(stage, folder)
    ctest(stage, folder, env={"MANTA_LONG": "1"} if stage.options.long else None)


def stage_clang(stage):
    """clang, warnings as errors: build of everything"""
    # Its warnings do not depend on optimisation, which takes most of the time.
    build(stage, configure(stage, "debug", "clang", "-DCMAKE_C_COMPILER=clang"))


def stage_asan(stage):
    """address and undefined-behaviour sanitizers: unit tests"""
    folder = configure(stage, "asan", "asan", "-DCMAKE_C_COMPILER=gcc")
    build(stage, folder)
    # Models against recorded trainings, and every order of a step: long, and nothing in them that others lack.
    ctest(stage, folder, "-E", "^train/(models|group_order)$", env={
        "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1"
                        ":check_initialization_order=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"})


def stage_tsan(stage):
    """thread sanitizer: the unit tests of what has threads"""
    folder = configure(stage, "tsan", "tsan", "-DCMAKE_C_COMPILER=gcc")
    build(stage, folder, "threads_tests")
    # Kernels that spread addresses over more bits than gcc 12's runtime
    # expects make it refuse to start; without randomisation it does not.
    wrap = ["setarch", os.uname().machine, "-R"]
    if shutil.which("setarch") is None or subprocess.run([*wrap, "true"], capture_output=True).returncode:
        wrap = []
    ctest(stage, folder, "-L", "^threads$", wrap=wrap, env={
        "TSAN_OPTIONS": f"halt_on_error=1:second_deadlock_stack=1:suppressions={ROOT}/tests/tsan.supp"})


def stage_tidy(stage):
    """clang-tidy on src/ (what changed since its last clean run)"""
    folder = configure(stage, "debug", "clang", "-DCMAKE_C_COMPILER=clang")
    ok = stage.run(sys.executable, "tools/tidy.py", folder, timeout_s=1800) == 0
    stage.add(passed=ok, failed=not ok)


def stage_format(stage):
    """clang-format on every C file"""
    tool = shutil.which("clang-format-14") or shutil.which("clang-format") or "clang-format"
    sources = files("*.c", "*.h", "*.inc")
    ok = stage.run(tool, "--dry-run", "-Werror", *sources) == 0
    stage.add(passed=ok, failed=not ok)


def stage_house(stage):
    """directions of includes, blank lines, headers alone, symbols, install, documents, scripts"""
    folder = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
    # The gcc stage counted this build; most of what follows can be said without it.
    if stage.run("cmake", "--build", folder, "-j", CORES, timeout_s=1800) != 0:
        stage.add(failed=1)
        stage.notes.append("the build failed")
    out = LOGS / "house.out"
    with open(out, "w", encoding="utf-8") as f:
        stage.run(sys.executable, "-m", "unittest", "discover", "-v", "-s", "tests/house", "-p", "test_*.py",
                  env={"MANTA_BUILD": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}, output=f)
    text = out.read_text(encoding="utf-8", errors="replace")
    stage.say(text)
    counts = unittest_counts(text)
    stage.add(*(counts or (0, 1, 0)))
    stage.notes += [f"failed: {m}" for m in re.findall(r"^(?:FAIL|ERROR): (\w+)", text, re.M)]


def stage_onednn(stage):
    """tensor/ without oneDNN, and its one file against oneDNN 3 (only with --peers, or by name)"""
    build(stage, configure(stage, "debug", "plain", "-DCMAKE_C_COMPILER=gcc", "-DMANTA_ONEDNN=OFF",
                           "-DMANTA_TESTS=OFF"), "manta_tensor")
    sources = [p for p in (ROOT / "src" / "tensor").glob("*.c")
               if any(n.startswith(("oneapi/", "dnnl")) for _, _, n in check_includes.includes(p))]
    if len(sources) != 1:
        stage.add(failed=1)
        stage.notes.append(f"{len(sources)} files of src/tensor touch oneDNN; there is to be one")
        return
    # Debian 12 has 2.6, so the headers of 3.x come from PyPI; compiling needs no more than them.
    headers = ROOT / "build" / "onednn3"
    if not (headers / "include" / "oneapi").is_dir():
        python = venv(stage)
        if python is None:
            stage.add(skipped=1)
            return
        stage.must(python, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-deps",
                   "--target", headers, "onednn-devel>=2024",
                   what="fetching the headers of oneDNN 3 (can PyPI be reached? MANTA_OFFLINE=1 skips this)")
    flags = ["-std=c17", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-D_GNU_SOURCE", "-DMANTA_ONEDNN"]
    ok = stage.run("gcc", "-fsyntax-only", *flags, f"-isystem{headers}/include", "-Isrc", "-Iinclude", sources[0]) == 0
    stage.add(passed=ok, failed=not ok)


FUZZ_SECONDS = 2


def fuzz_one(stage, folder, program, log):
    """Replays a target's corpus, then fuzzes it from there; two tests.

    Without --fuzz the seed is fixed: a commit is judged by what it changed, not by that day's luck."""
    seconds = stage.options.fuzz or FUZZ_SECONDS
    seed = 0 if stage.options.fuzz else 1       # 0: a new one each time
    name = program.name[len("fuzz_"):]
    corpus = ROOT / "tests" / "fuzz" / "corpus" / name
    grown = folder / "corpus" / name            # what this machine found in earlier runs
    crashes = folder / "artifacts" / name
    grown.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    common = [f"-artifact_prefix={crashes}/", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=0",
              "-close_fd_mask=1"]
    env = {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
           "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
    saved = sorted(p for p in corpus.rglob("*") if p.is_file()) if corpus.is_dir() else []
    replayed = bool(saved) and stage.run(program, *common, *saved, env=env, output=log) == 0
    if not saved:
        stage.notes.append(f"{name}: tests/fuzz/corpus/{name} holds nothing to replay")
    elif not replayed:
        stage.notes.append(f"{name}: a saved input fails")
    fuzzed = stage.run(program, *common, f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=65536", grown,
                       *([corpus] if saved else []), env=env, output=log, timeout_s=seconds + 120) == 0
    if not fuzzed:
        stage.notes.append(f"{name}: an input that fails is in {crashes.relative_to(ROOT)}")
    stage.add(passed=replayed + fuzzed, failed=2 - replayed - fuzzed)
    return replayed and fuzzed


def stage_fuzz(stage):
    """every parser: saved inputs replayed, then some seconds of fuzzing"""
    folder = configure(stage, "fuzz", "fuzz")
    build(stage, folder, "fuzz_targets")
    programs = sorted(p for p in (folder / "tests" / "fuzz").glob("fuzz_*") if os.access(p, os.X_OK) and p.is_file())
    expected = sorted(p.name[:-len("_fuzz.c")] for p in (ROOT / "tests" / "fuzz").glob("*_fuzz.c"))
    programs = [p for p in programs if p.name[len("fuzz_"):] in expected]
    if not programs:
        stage.add(failed=1)
        stage.notes.append("tests/fuzz holds no target")

    def one(program):
        with open(LOGS / f"{program.name}.log", "w", encoding="utf-8") as log:
            ok = fuzz_one(stage, folder, program, log)
        if not ok:
            text = (LOGS / f"{program.name}.log").read_text(encoding="utf-8", errors="replace")
            stage.evidence.append((program.name, text))

    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:      # a fuzzer keeps one core busy
        list(pool.map(one, programs))


def venv(stage, folder=VENV, requirements="tests/cli/requirements.txt"):
    """The Python clients' environment; its interpreter, or None when it cannot be had offline.

    Made anew when the requirements change; a stamp written last marks a
    complete one."""
    wanted = (ROOT / requirements).read_bytes() + sys.version.encode()
    stamp = folder / "complete"
    digest = hashlib.sha256(wanted).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        return folder / "bin" / "python"
    if os.environ.get("MANTA_OFFLINE") == "1":
        stage.notes.append(f"MANTA_OFFLINE=1, and build/{folder.name} is not there yet")
        return None
    stage.must(sys.executable, "-m", "venv", "--clear", folder, what="making the virtual environment")
    stage.must(folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "-q",
               "-r", requirements,
               what=f"installing {requirements} (can PyPI be reached? MANTA_OFFLINE=1 skips this)")
    stamp.write_text(digest)
    return folder / "bin" / "python"


def pytest(stage, marks, timeout_s, env=None):
    """Runs the tests in tests/cli that have these marks."""
    folder = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
    stage.must("cmake", "--build", folder, "-j", CORES, what="the build", timeout_s=1800)
    python = venv(stage)
    if python is None:
        stage.add(skipped=1)
        return
    # One file's tests stay together: what they make is theirs alone.
    run_pytest(stage, python, stage.name, "-n", TESTS_AT_ONCE, "--dist", "loadfile", "-m", marks, "tests/cli",
               env={"MANTA_BIN": str(folder / "manta"), "MANTA_BUILD": str(folder), **(env or {})}, timeout_s=timeout_s)


def python_tests(stage, folder, name, *options, python=None, tests="tests/python", env=None, timeout_s=2400):
    """Runs tests of the Python package of a build folder, by an interpreter that has what they import."""
    python = python or venv(stage, PYTHON_VENV, "tests/python/requirements.txt")
    if python is None:
        stage.add(skipped=1)
        return
    run_pytest(stage, python, name, "-n", TESTS_AT_ONCE, "--dist", "loadfile", *options, tests,
               env={"PYTHONPATH": str(folder / "python"), "MANTA_BUILD": str(folder), **(env or {})}, timeout_s=timeout_s)


def sanitizer_runtime():
    """Path of gcc's address sanitizer, which must come before all others into an interpreter that lacks it."""
    done = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True)
    return done.stdout.strip()


def stage_python(stage):
    """the Python package: manta, manta.ray, types, examples (pytest); its C also under address sanitizer"""
    folder = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
    build(stage, folder, "manta_python")
    python_tests(stage, folder, "python", "-m", "long or not long" if stage.options.long else "not long",
                 timeout_s=3600 if stage.options.long else 2400)
    folder = configure(stage, "asan", "asan", "-DCMAKE_C_COMPILER=gcc")
    build(stage, folder, "manta_python")
    # The interpreter keeps what it has until it ends: leaks are not to be told from that. Its own
    # allocator would hide the ends of blocks from the sanitizer.
    python_tests(stage, folder, "python-asan", "-m", "sanitized", env={
        "LD_PRELOAD": sanitizer_runtime(), "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:strict_string_checks=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"})


def stage_peers(stage):
    """what needs TensorFlow, PyTorch and Ray, which it installs once (only with --peers, or by name)"""
    try:
        environment = peers.environment()
    except peers.PeersMissing as e:
        stage.add(**({"skipped": 1} if os.environ.get("MANTA_OFFLINE") == "1" else {"failed": 1}))
        stage.notes.append(str(e))
        return
    folder = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
    build(stage, folder, "manta_python")
    python_tests(stage, folder, "peers", python=environment / "bin" / "python", tests="tests/peers", timeout_s=1800)
    python_tests(stage, folder, "seeds", python=environment / "bin" / "python", tests="tests/seeds", timeout_s=1800)


def stage_cli(stage):
    """the command line and the Python clients that read our files (pytest)"""
    pytest(stage, "not long and not chaos and not clients", 2400)


def stage_clients(stage):
    """files in the oldest Keras 3 and large models in the newest (only with --peers, or by name)"""
    old = venv(stage, OLD_VENV, "tests/cli/requirements-old.txt")
    pytest(stage, "clients", 900, {"MANTA_OLD_KERAS": str(old or "")})


def stage_long(stage):
    """full trainings, to the accuracies we promise (only with --long)"""
    pytest(stage, "long", 4 * 3600, {"MANTA_LONG": "1"})


def stage_chaos(stage):
    """processes killed at random while they train and work (only with --chaos SECONDS)"""
    seconds = stage.options.chaos
    pytest(stage, "chaos", seconds + 600, {"MANTA_CHAOS_SECONDS": str(seconds)})
    folder = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
    build(stage, folder, "runtime_program", "test_task_kill")
    ctest(stage, folder, "-R", "^(runtime/chaos|task/kill)$", "--timeout", str(seconds + 600),
          env={"CHAOS_SECONDS": str(seconds), "KILL_ALL": "1"})


def stage_hosts(stage):
    """manta launch by ssh, Slurm and MPI as far as they are installed, on hosts that are namespaces (tests/hosts)"""
    folder = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
    stage.must("cmake", "--build", folder, "-j", CORES, "--target", "manta_cli", what="the build", timeout_s=1800)
    python = venv(stage)
    if python is None:
        stage.add(skipped=1)
        return
    # Their packages start servers that listen when they are installed: only who asks for it gets that.
    if stage.options.hosts and stage.run("tools/setup.sh", "hosts") != 0:
        stage.add(failed=1)
        stage.notes.append("packages of group hosts of tools/packages.txt could not be installed")
    rc = run_pytest(stage, python, "hosts", "tests/hosts", env={"MANTA_BIN": str(folder / "manta")}, timeout_s=900,
                    before=(sys.executable, "tests/hosts/world.py"))
    if rc == NO_WORLD:
        stage.add(skipped=1)
        stage.notes.append("this machine allows no network namespaces")


SIMULATIONS = "^(store/(refs|spill|directory)|task/(sched_sim|demand|registry_sim|cancel|lineage|retry)|train/random)$"     # tests with unit/sim.h


def stage_sim(stage):
    """simulations of the runtime and random trainings, with more seeds"""
    folder = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
    build(stage, folder)
    ctest(stage, folder, "-R", SIMULATIONS, env={"MANTA_SIM": str(stage.options.sim)})


SOAK_PROGRAMS = 60
SOAK_LIMIT_S = 600      # none is begun after so long: a machine that is ten times slower still runs them all
SOAK_DEADLINE_S = 600   # of one, which takes seconds: it fails when it hangs, not when it is slow
SOAK_SHRINK_S = 120


def soak_counts(text):
    """(passed, failed) of soak_runtime and the seeds that failed, None when it did not come to its end."""
    last = re.search(r"^(\d+) passed, (\d+) failed\n?\Z", text, re.M)
    if last is None:
        return None
    return int(last.group(1)), int(last.group(2)), re.findall(r"^FAILED (\w+):", text, re.M)


def stage_soak(stage):
    """programs on the runtime that seeds make, compared with a model (tests/soak)"""
    folder = configure(stage, "release", "gcc", "-DCMAKE_C_COMPILER=gcc")
    build(stage, folder, "soak_runtime")
    # The same programs on every machine without --soak: a commit is judged by what it changed, not by that day's luck.
    minutes = stage.options.soak
    programs = 10 ** 9 if minutes else SOAK_PROGRAMS
    seconds = 60 * minutes or SOAK_LIMIT_S
    seed = time.time_ns() % 10 ** 9 if minutes else 1
    kept, out = folder / "soak", LOGS / "soak.out"
    kept.mkdir(exist_ok=True)
    with open(out, "w", encoding="utf-8") as f:
        stage.run(folder / "tests" / "soak_runtime", "--seed", seed, "--programs", programs, "--seconds", seconds,
                  "--deadline", SOAK_DEADLINE_S, "--shrink", SOAK_SHRINK_S, "--keep", kept, output=f,
                  timeout_s=seconds + 2 * SOAK_DEADLINE_S + SOAK_SHRINK_S)
    text = out.read_text(encoding="utf-8", errors="replace")
    stage.say(text)
    counts = soak_counts(text)
    if counts is None:
        stage.add(failed=1)
        stage.notes.append("soak_runtime did not come to its end")
        return
    stage.add(counts[0], counts[1])
    stage.notes += [f"failed: seed {s}; the program is in {kept.relative_to(ROOT)}" for s in counts[2]]
    if counts[1]:
        stage.evidence.append(("soak_runtime", text))


ALWAYS = [stage_format, stage_gcc, stage_house, stage_sim, stage_soak, stage_clang, stage_asan, stage_tsan, stage_tidy, stage_fuzz,
          stage_python, stage_cli, stage_hosts]
PEERS = [stage_onednn, stage_clients, stage_peers]      # other programs, and other versions of them: much to install


def name_of(function):
    return function.__name__[len("stage_"):]


def arguments():
    every = [*ALWAYS, *PEERS, stage_long, stage_chaos]
    stages = "\n".join(f"  {name_of(s):8}{s.__doc__}" for s in every)
    p = argparse.ArgumentParser(prog="./check", formatter_class=argparse.RawDescriptionHelpFormatter,
                                description="Builds and tests Manta; all stages unless some are named.",
                                epilog=f"stages:\n{stages}\n\nMANTA_OFFLINE=1 skips what needs PyPI; "
                                       "MANTA_SKIP_SETUP=1 leaves packages alone.")
    p.add_argument("--long", action="store_true", help="also run the full trainings")
    p.add_argument("--peers", action="store_true", help="also run what needs TensorFlow, PyTorch and Ray (8 GB, installed once), an old Keras and a new oneDNN")
    p.add_argument("--fuzz", type=int, default=0, metavar="SECONDS",
                   help=f"fuzz each parser this long from a new seed (default {FUZZ_SECONDS} from a fixed one)")
    p.add_argument("--sim", type=int, default=15, metavar="FACTOR", help="run the simulations with so many times their seeds (default 15)")
    p.add_argument("--soak", type=int, default=0, metavar="MINUTES",
                   help=f"run generated programs this long from a new seed (default {SOAK_PROGRAMS} programs from a fixed one)")
    p.add_argument("--hosts", action="store_true", help="install sshd, Slurm, Open MPI and MPICH for the stage hosts, which skips what is not there")
    p.add_argument("--chaos", type=int, default=0, metavar="SECONDS", help="also kill processes at random this long")
    p.add_argument("stages", nargs="*", metavar="NAME", help="run only these stages")
    options = p.parse_args()
    chosen = ALWAYS + (PEERS if options.peers else []) + ([stage_long] if options.long else []) + \
        ([stage_chaos] if options.chaos else [])
    if options.stages:
        known = {name_of(s): s for s in every}
        for name in options.stages:
            if name not in known:
                p.error(f"no stage is called {name}; there are {', '.join(known)}")
        chosen = [s for s in known.values() if name_of(s) in options.stages]
    return options, chosen


def show_failure(stage):
    """The end of what the failing tests printed, or of the stage's log where that is not known."""
    for name, text in stage.evidence[:5] or [("the log", stage.path.read_text(encoding="utf-8", errors="replace"))]:
        print(f"    {name} ends so:")
        for line in text.splitlines()[-40:]:
            print(f"    | {line}")
    print(f"    the whole log: {stage.path.relative_to(ROOT)}")


def main():
    # A shell that runs this in the background has it ignore SIGINT, and what it starts inherits that: tests of Ctrl-C fail.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options, chosen = arguments()
    passed = failed = skipped = 0
    wrong = []
    started = time.monotonic()
    for function in chosen:
        stage = Stage(name_of(function), options)
        begun = time.monotonic()
        print(f"{stage.name:7} {function.__doc__}", flush=True)
        try:
            function(stage)
        except StageFailed:
            pass
        except Exception:       # our own mistake: said as a failure of this stage, and the others still run
            stage.add(failed=1)
            stage.say(traceback.format_exc())
        finally:
            stage.log.close()
        counts = f"{stage.passed} passed, {stage.failed} failed" + (f", {stage.skipped} skipped" if stage.skipped else "")
        print(f"        {counts}; {time.monotonic() - begun:.1f} s", flush=True)
        for note in stage.notes:
            print(f"        {note}")
        if stage.failed:
            show_failure(stage)
            wrong += [f"{stage.name}: {note}" for note in stage.notes or [f"{stage.failed} failed"]]
        passed, failed, skipped = passed + stage.passed, failed + stage.failed, skipped + stage.skipped
    for what in wrong:      # once more: whoever reads the end of a long log knows what to look at
        print(what)
    print(f"{time.monotonic() - started:.0f} s in all")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
