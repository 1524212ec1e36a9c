"""What is installed beside Manta is imported by nobody but the program."""
from conftest import run_python

NAMES = "('torch', 'tensorflow', 'keras', 'numpy', 'pandas', 'pyarrow')"


def test_manta_imports_none_of_them(python):
    program = """
import sys, manta, manta.ray
@manta.remote
def heavy(): import sys; return [m for m in %s if m in sys.modules]
manta.init(num_cpus=1)
manta.get(manta.put([1, {"a": {2}}]))
print(manta.get(heavy.remote()), [m for m in %s if m in sys.modules])
""" % (NAMES, NAMES)
    assert python(program) == "[] []\n"


def test_a_real_ray_that_is_installed_is_not_looked_at(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import sys
import ray
from ray.util.queue import Queue
ray.init(num_cpus=1)
@ray.remote
def where():
    import ray, sys
    return ray.__name__, [m for m in sys.modules if m == "ray._raylet" and "manta" not in sys.modules[m].__file__]
print(ray.__name__, ray.get(where.remote()), Queue.__module__)
""")
    assert run_python("-c", "import ray; print(ray.__version__)").stdout == "2.60.0\n"
    done = run_python("-m", "manta", "run", script)
    assert done.stdout == "manta.ray ('manta.ray', []) manta.ray.util.queue\n", done.stderr
