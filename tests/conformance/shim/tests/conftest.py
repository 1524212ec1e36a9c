"""ray.tests.conftest: what tests import from there."""
import contextlib

import pytest


@contextlib.contextmanager
def call_ray_start_context(request):
    pytest.skip("the command line of Ray")
    yield
