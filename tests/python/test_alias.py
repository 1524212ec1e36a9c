"""`import ray` that is manta.ray, and `python -m manta run`."""
import textwrap

import pytest

pytestmark = pytest.mark.sanitized


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def must(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ray_is_manta_ray(python):
    out = must(python("-c", "import manta._alias as a; a.install(); a.install(); import ray, manta.ray; "
                            "import ray.util.queue, manta.ray.util.queue; from ray.exceptions import RayError; "
                            "print(ray is manta.ray, ray.util.queue is manta.ray.util.queue, RayError.__module__, "
                            "ray.__spec__.name, ray.util.__spec__.name)"))
    assert out.split() == ["True", "True", "manta.ray.exceptions", "manta.ray", "manta.ray.util"]


def test_submodules_come_when_asked_for(python):
    out = must(python("-c", "import sys, manta._alias as a; a.install(); import ray; before = 'manta.ray.util' in sys.modules; "
                            "ray.util.ActorPool; print(before, 'manta.ray.util' in sys.modules)"))
    assert out.split() == ["False", "True"]


MISSING = ("dag", "workflow", "autoscaler", "job_submission", "cross_language", "util.client")


@pytest.mark.parametrize("name", MISSING)
def test_modules_that_are_not_supported_say_so(python, tmp_path, name):
    parent, _, last = ("ray." + name).rpartition(".")
    program = write(tmp_path, "program.py", f"""
        import importlib
        def fails(do):
            try: do()
            except ImportError as e:
                assert isinstance(e, NotImplementedError) and "ray.{name} " in str(e) and "docs/from-ray-python.md" in str(e), e
                return True
        parent = importlib.import_module({parent!r})
        print(fails(lambda: importlib.import_module("ray.{name}")), fails(lambda: importlib.import_module("ray.{name}.deeper")),
              fails(lambda: importlib.import_module("manta.ray.{name}")), fails(lambda: getattr(parent, {last!r})),
              fails(lambda: exec("from {parent} import {last}")))
        """)
    assert must(python("-m", "manta", "run", program)).split() == ["True"] * 5


def test_marks_of_an_interface_change_nothing(python):
    out = must(python("-c", "import manta._alias as a; a.install(); from ray.util.annotations import *; f = lambda: 1; "
                            "print(all(m(f) is f and m()(f) is f and m(stability='alpha')(f) is f "
                            "for m in (PublicAPI, DeveloperAPI, Deprecated)), issubclass(RayDeprecationWarning, DeprecationWarning))"))
    assert out.split() == ["True", "True"]


def test_what_is_not_there_says_so(python):
    done = python("-c", "import manta._alias as a; a.install(); import ray.tune")
    assert done.returncode == 1
    assert "No module named 'ray.tune': it is not part of manta.ray" in done.stderr


def test_without_the_alias_there_is_no_ray(python):
    assert "ModuleNotFoundError: No module named 'ray'" in python("-c", "import manta.ray, ray").stderr


def test_a_real_ray_is_never_imported(python, tmp_path):
    write(tmp_path, "ray/__init__.py", "raise SystemExit('the real one')\n")
    script = write(tmp_path, "script.py", "import ray\nprint(ray.__name__)\n")
    assert must(python("-m", "manta", "run", script)) == "manta.ray\n"


def test_a_real_ray_that_is_imported_is_left_alone(python, tmp_path):
    write(tmp_path, "ray/__init__.py", "")
    done = python("-c", "import ray, manta._alias as a; a.install()", env={"PYTHONPATH": f"{tmp_path}:{path()}"})
    assert "ImportError: a module 'ray' of" in done.stderr


def path():
    import os
    return os.environ.get("PYTHONPATH", "")


def test_the_script_is_main(python, tmp_path):
    write(tmp_path, "beside.py", "value = 7\n")
    script = write(tmp_path, "script.py", """
        import sys
        import beside
        import __main__
        print(__name__, __file__ == sys.argv[0], sys.argv[1:], beside.value, __main__.__dict__ is globals())
        """)
    assert must(python("-m", "manta", "run", script, "a", "--b")) == "__main__ True ['a', '--b'] 7 True\n"


def test_workers_have_the_alias_too(python, tmp_path):
    script = write(tmp_path, "script.py", """
        import ray

        @ray.remote
        def inner(x):
            import ray.util.queue
            return x + 1

        @ray.remote
        class A:
            def f(self, x):
                import ray
                return ray.get(inner.remote(x)), ray.__name__

        print(ray.get(A.remote().f.remote(1)))
        """)
    assert must(python("-m", "manta", "run", script)) == "(2, 'manta.ray')\n"


def test_a_traceback_begins_with_the_users_line(python, tmp_path):
    script = write(tmp_path, "script.py", "def f():\n    raise ValueError('mine')\nf()\n")
    done = python("-m", "manta", "run", script)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and str(script) in lines[1] and "manta/" not in done.stderr
    assert lines[-1] == "ValueError: mine"


def test_exit_statuses_are_the_scripts(python, tmp_path):
    assert python("-m", "manta", "run", write(tmp_path, "a.py", "raise SystemExit(7)\n")).returncode == 7
    assert python("-m", "manta", "run", write(tmp_path, "b.py", "")).returncode == 0


def test_a_module_can_be_run(python, tmp_path):
    write(tmp_path, "tool.py", "import sys, ray\nprint(__name__, sys.argv[1:], ray.__name__)\n")
    assert must(python("-m", "manta", "run", "-m", "tool", "x", cwd=tmp_path)) == "__main__ ['x'] manta.ray\n"


@pytest.mark.parametrize("arguments", [[], ["--no-such"], ["-m"], ["/no/such/script.py"]])
def test_wrong_use_is_said(python, arguments):
    done = python("-m", "manta", "run", *arguments)
    assert done.returncode in (1, 2) and done.stderr.startswith(("usage:", "manta run:")), done.stderr


@pytest.mark.parametrize("arguments", [["help", "run"], ["run", "--help"], ["--help"], ["help"]])
def test_help_knows_run(python, arguments):
    done = python("-m", "manta", *arguments)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "run [-m MODULE | SCRIPT] [ARGUMENT...]" in done.stdout and "`import ray` is manta.ray" in done.stdout


def test_help_that_nobody_reads_to_its_end_is_no_failure(python):
    """What `manta help | head -1` does; the pipe is closed before the program begins."""
    code = ("import os, sys, manta.__main__ as m; r, w = os.pipe(); os.close(r); os.dup2(w, 1); "
            "m.subprocess.call = lambda command: 0; m._show_help('manta')")
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["--on", "k8s", "--image", "i", "--print", "--", "train", "mlp"],
                                       ["-n", "2", "--nodes=3", "--print", "--image", "i", "--on=k8s", "--", "train", "mlp"]])
def test_a_launch_on_other_hosts_is_the_programs(python, arguments):
    done = python("-m", "manta", "launch", *arguments)
    assert done.returncode == 0 and "kind: Job" in done.stdout, done.stderr


def test_a_launch_of_a_script_with_on_is_ours(python, tmp_path):
    (tmp_path / "main.py").write_text("import sys; print(sys.argv[1:])")
    for options in (["-n1"], ["-n", "1", "--no-prefix"], ["-n", "1", "--"]):
        done = python("-m", "manta", "launch", *options, tmp_path / "main.py", "--on", "k8s")
        assert (done.returncode, done.stdout) == (0, "['--on', 'k8s']\n"), done.stderr


def test_the_program_is_reached(python):
    done = python("-m", "manta", "--version")
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["manta"]), done.stderr
