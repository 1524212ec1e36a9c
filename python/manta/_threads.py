"""How many threads the libraries of a worker compute with: as many as processors were granted to what it runs.

A library reads OMP_NUM_THREADS when it is imported, and what a warm nursery has imported has read "1" there. So the
variable says how many there are to be, and libraries that are here already are told. What the user has set stands.

A worker begins with one thread, and a fork of a warm nursery has nothing to do for it. That matters: the threads
of OpenBLAS turn for tens of milliseconds before they sleep, which was most of what a hundred new workers did.
"""
import os
import sys

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_openblas = {}  # path of each OpenBLAS here: what sets its number of threads
_looked = None  # of which libraries with one this process had some when _openblas was filled
is_ours = False  # in a worker: nobody else has set OMP_NUM_THREADS


def begin():
    """In a new worker, which has the variables of its environment."""
    global is_ours
    is_ours = "OMP_NUM_THREADS" not in os.environ
    if is_ours:
        os.environ["OMP_NUM_THREADS"] = "1"
    if not is_ours or any(name in os.environ for name in VARIABLES[1:]):
        _tell()


def grant(processors):
    """What runs from now on has so many processors; a part of one, or none, is one."""
    if is_ours:
        os.environ["OMP_NUM_THREADS"] = str(processors)
        _tell()


def _wanted(name):
    """What a library that looks for the variable first would find."""
    for variable in (name, "OMP_NUM_THREADS"):
        text = os.environ.get(variable, "").partition(",")[0]
        if text.isdigit() and int(text) > 0:
            return int(text)
    return 1


def _tell():
    set_number = getattr(sys.modules.get("torch"), "set_num_threads", None)
    if set_number is not None:
        set_number(_wanted("MKL_NUM_THREADS"))
    find_openblas()
    for set_number in _openblas.values():
        set_number(_wanted("OPENBLAS_NUM_THREADS"))


def find_openblas():
    """Finds what _tell() calls, among the libraries that this process has."""
    global _looked
    users = sys.modules.keys() & {"numpy", "scipy"}
    if users == _looked or not users:
        return
    _looked = users
    import ctypes
    with open("/proc/self/maps") as f:
        paths = {line.split(maxsplit=5)[-1].strip() for line in f if "openblas" in line}
    for path in paths - _openblas.keys():
        try:
            library = ctypes.CDLL(path)
        except OSError:  # another file of that name, or one that was replaced since
            continue
        for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads64_",
                     "openblas_set_num_threads"):
            if hasattr(library, name):
                _openblas[path] = getattr(library, name)
                break
