"""ray.tests.conftest: what tests import from there."""
import contextlib

import pytest


@contextlib.contextmanager
def call_ray_start_context(request):
    pytest.skip("the command line of Ray")
    yield


@contextlib.contextmanager
def _ray_start_cluster(**_):
    pytest.skip("a cluster of several nodes on one host")
    yield


@pytest.fixture
def propagate_logs():
    yield
