"""Fixtures by the names that Ray's own tests ask for; copied beside them by `run`."""
import asyncio
import contextlib
import logging
import os
import pathlib
import tempfile

import pytest

import ray
import ray._common.utils
import ray._private.ray_constants
import ray._private.utils
import ray._private.worker
import ray.cluster_utils

DEFAULTS = {"num_cpus": 1, "object_store_memory": 150 * 1024 * 1024, "namespace": "default_test_namespace"}


@contextlib.contextmanager
def started(**kwargs):
    ray.shutdown()      # what a shared fixture, or a test that failed, has left
    context = ray.init("local", **{**DEFAULTS, **kwargs})
    try:
        yield context
    finally:
        ray.shutdown()


def starter(scope="function", **fixed):
    """A fixture that starts a node, with the parameters that a test gives."""
    @pytest.fixture(scope=scope)
    def fixture(request):
        with started(**{**fixed, **(getattr(request, "param", None) or {})}) as context:
            yield context
    return fixture


ray_start_regular = starter()
ray_start_regular_shared = starter("module")
ray_start_regular_shared_2_cpus = starter("module", num_cpus=2)
ray_start_2_cpus = starter(num_cpus=2)
ray_start_4_cpus = starter(num_cpus=4)
ray_start_4_cpus_2_gpus = starter(num_cpus=4, num_gpus=2)
ray_start_1_cpu_1_gpu = starter(num_cpus=1, num_gpus=1)
ray_start_10_cpus = starter(num_cpus=10)
ray_start_no_cpu = starter(num_cpus=0)
ray_start_with_dashboard = starter(num_cpus=1)


@pytest.fixture
def shutdown_only():
    ray.shutdown()
    yield None
    ray.shutdown()


@pytest.fixture(scope="class")
def class_ray_instance():
    yield ray.init()
    ray.shutdown()


@pytest.fixture
def ray_start_object_store_memory(request):
    with started(object_store_memory=request.param):
        yield request.param


@pytest.fixture
def propagate_logs():
    logging.getLogger("ray").propagate = True
    yield


@pytest.fixture
def set_enable_auto_connect(request, monkeypatch):
    wanted = getattr(request, "param", False)
    monkeypatch.setenv("RAY_ENABLE_AUTO_CONNECT", "1" if wanted else "0")
    yield wanted


@pytest.fixture
def enable_pickle_debug(monkeypatch):
    monkeypatch.setenv("RAY_PICKLE_VERBOSE_DEBUG", "1")
    yield


@pytest.fixture
def error_pubsub():
    yield None


@pytest.fixture
def log_pubsub():
    yield None


@pytest.fixture
def temp_file():
    with tempfile.NamedTemporaryFile("r+b") as f:
        yield f


@pytest.fixture
def temp_dir():
    with tempfile.TemporaryDirectory("r+b") as folder:
        yield folder


@pytest.fixture
def tmp_working_dir():
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "hello").write_text("world")
        (here / "file_module.py").write_text("def hello():\n    return 'hello'\n")
        (here / "test_module").mkdir()
        (here / "test_module" / "test.py").write_text("def one():\n    return 1\n")
        (here / "test_module" / "__init__.py").write_text("from test_module.test import one\n")
        yield folder


@pytest.fixture
def maybe_setup_external_redis():
    yield False


def refused(name):
    @pytest.fixture(name=name)
    def fixture():
        pytest.skip("a cluster of several nodes on one host")
    return fixture


for _name in ("ray_start_cluster", "ray_start_cluster_enabled", "ray_start_cluster_init", "ray_start_cluster_head",
              "ray_start_cluster_2_nodes", "start_cluster", "start_cluster_shared", "two_node_cluster", "call_ray_start",
              "ray_start_cluster_enabled_shared", "ray_start_cluster_head_with_env_vars"):
    globals()[_name] = refused(_name)


# Tests that would pass because a stand-in can be imported, of classes that programs use and that are not here.
NOT_HERE = ("test_lightgbm_import", "test_xgboost_import", "test_serialized_imports")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.name in NOT_HERE:
            item.add_marker(pytest.mark.skip(reason="LightGBM and XGBoost are not part of manta.train"))


def _is_of_module(request, name):
    """Whether a fixture of the test file's own holds a node for all of its tests."""
    found = request._fixturemanager.getfixturedefs(name, request.node) or ()
    return name.startswith("ray_") and any(one.scope in ("module", "session") for one in found)


@pytest.fixture(autouse=True)
def nothing_stays(request):
    """A test that fails in the middle leaves no node and no variable behind for the next one."""
    before = os.environ.copy()
    yield
    os.environ.clear()
    os.environ.update(before)
    if not any("shared" in name or name == "init" or _is_of_module(request, name) for name in request.fixturenames):
        ray.shutdown()


@pytest.fixture
def event_loop():
    """Of pytest-asyncio before 1.0."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()
