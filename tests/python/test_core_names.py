"""Names: what is exported is documented, and what the type files (.pyi) say is there."""
import ast
import pathlib
import sys

import pytest

import manta
from manta import _manta

FOLDER = pathlib.Path(manta.__file__).parent


def declared_names(path):
    return {n.name for n in ast.parse(path.read_text()).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


def test_the_types_of_the_extension_are_those_of_the_module():
    there = {n for n in dir(_manta) if not n.startswith("__")}
    assert declared_names(FOLDER / "_manta.pyi") == there


def test_the_types_of_the_package_are_its_names():
    names = {n for n in declared_names(FOLDER / "__init__.pyi") if not n.startswith("_")}
    assert names | {"exceptions"} == set(manta.__all__)


@pytest.mark.parametrize("name", sorted(set(manta.__all__) - {"exceptions"}))
def test_what_is_public_has_a_docstring(name):
    doc = getattr(manta, name).__doc__
    assert doc and doc.strip() and doc.strip()[0].isupper()


def test_every_exception_is_a_manta_error_and_says_what_it_is():
    for name in manta.exceptions.__all__:
        cls = getattr(manta.exceptions, name)
        assert issubclass(cls, manta.exceptions.MantaError) and cls.__doc__


@pytest.mark.parametrize("first", ["manta", "sys"], ids=["after-the-main-one", "before-the-main-one"])
def test_a_second_interpreter_is_refused(python, first):
    subinterpreters = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"
    out = python("-c", f"import {first}, {subinterpreters} as s\ni = s.create()\n"
                       "try:\n    s.run_string(i, 'import manta')\n    print('imported')\n"
                       "except Exception as e:\n    print('once in a process' in str(e))\n")
    assert out.stdout == "True\n", out.stdout + out.stderr
