"""Options of manta.ray: refused as Ray refuses them, or translated."""
import pickle

import pytest

import manta.ray as ray
from manta.ray import _options, _signature


def f():
    return 1


class A:
    pass


@pytest.mark.parametrize("it, given, error, text", [
    (f, {"max_retries": 0.5}, TypeError, "The type of keyword 'max_retries' must be"),
    (f, {"max_retries": -2}, ValueError, "where -1 represents infinity"),
    (f, {"num_returns": -1}, ValueError, "The keyword 'num_returns' only accepts None"),
    (f, {"num_returns": "some"}, ValueError, "The keyword 'num_returns' only accepts None"),
    (f, {"num_gpus": 1e-7}, ValueError, "cannot go beyond 0.0001"),
    (f, {"num_gpus": 1e-10}, ValueError, "cannot go beyond 0.0001: it is 0 or a multiple"),
    (f, {"num_cpus": 0.00015}, ValueError, "cannot go beyond 0.0001: it is 0 or a multiple"),
    (A, {"resources": {"disk": 1e-10}}, ValueError, "resource disk cannot go beyond 0.0001"),
    (f, {"num_cpus": float("inf")}, ValueError, "must be a number, and is inf"),
    (f, {"num_cpus": float("nan")}, ValueError, "must be a number, and is nan"),
    (f, {"num_cpus": -1}, ValueError, "cannot be negative"),
    (f, {"resources": {"CPU": 1}}, ValueError, "num_cpus"),
    (f, {"resources": {"memory": 1}}, ValueError, "memory"),
    (f, {"max_restarts": 1}, ValueError, "Invalid option keyword max_restarts for remote functions"),
    (f, {"nonsense": 1}, ValueError, "Invalid option keyword nonsense"),
    (f, {"retry_exceptions": [1]}, ValueError, "class of exceptions"),
    (A, {"max_restarts": -2}, ValueError, "where -1 represents infinity"),
    (A, {"max_retries": 1}, ValueError, "Invalid option keyword max_retries for actors"),
    (A, {"max_concurrency": 0}, ValueError, "max_concurrency"),
    (A, {"lifetime": "long"}, ValueError, "lifetime"),
    (A, {"get_if_exists": True}, ValueError, "name must be specified"),
    (A, {"label_selector": {"??": "x"}}, ValueError, "label key"),
    (A, {"label_selector": {"a": "matches(x)"}}, ValueError, "label selector value"),
    (A, {"label_selector": ""}, TypeError, "label_selector"),
    (A, {"fallback_strategy": [{"a": {}}]}, ValueError, "label_selector"),
    (f, {"runtime_env": {"env_vars": {"A": 1}}}, TypeError, "Dict\\[str, str\\]"),
    (f, {"runtime_env": {"no_such": 1}}, ValueError, "no field"),
])
def test_wrong_options_are_refused(it, given, error, text):
    with pytest.raises(error, match=text):
        ray.remote(**given)(it)


@pytest.mark.parametrize("it, given", [(f, {"runtime_env": {"pip": ["x"]}}),
                                       (f, {"runtime_env": {"working_dir": "https://host/x.zip"}}),
                                       (A, {"runtime_env": {"conda": "x"}})])
def test_what_is_not_here_is_said_by_the_call(it, given):
    remote = ray.remote(**given)(it)
    with pytest.raises(NotImplementedError, match="not part of manta.ray"):
        remote.remote()
    assert not ray.is_initialized()


@pytest.mark.parametrize("amount", [0, 0.0, 0.0001, 0.3, 0.1 + 0.2, 2, 2.5, 1e6 / 3 // 1 + 0.0001])
def test_amounts_of_four_decimal_places_are_taken(amount):
    ray.remote(num_cpus=amount, resources={"disk": amount})(f)


@pytest.mark.parametrize("given, text", [({"address": 5}, "address must be a string or None, not <class 'int'>"),
                                         ({"job_config": 5}, "job_config must be a JobConfig or a dictionary")])
def test_wrong_types_of_init_are_named(given, text):
    with pytest.raises(TypeError, match=text):
        ray.init(num_cpus=1, **given)
    assert not ray.is_initialized()


OF_TASK = {"stream_window": -1, "wait_infeasible": True}     # of every one


def test_options_are_translated():
    assert _options.of_task({"num_cpus": 0.5, "num_gpus": 0, "resources": {"disk": 1, "none": 0}, "max_retries": -1}) == \
        {"num_cpus": 0.5, "num_gpus": 0, "resources": {"disk": 1}, "max_retries": -1, "apart": None,
         "max_calls": 0, **OF_TASK}
    assert _options.of_actor({"lifetime": "detached", "max_pending_calls": -1, "name": "a"}) == \
        {"detached": True, "with_maker": False, "name": "a", "place_cpus": 1, "wait_infeasible": True}
    assert _options.of_actor({"resources": {"disk": 1}, "allow_out_of_order_execution": True,
                              "_actor_generator_backpressure_num_objects": 4}) == \
        {"resources": {"disk": 1}, "num_cpus": 1, "place_cpus": 0, "out_of_order": True, "stream_limit": 4,
         "wait_infeasible": True, "detached": False, "with_maker": True}
    assert _options.of_task({"scheduling_strategy": "SPREAD"}) == {"strategy": "spread", **OF_TASK}
    assert _options.of_task({"num_returns": "dynamic", "max_calls": 2}) == \
        {"num_returns": "dynamic", "max_calls": 2, **OF_TASK}
    assert _options.of_task({"num_gpus": 1}) == {"num_gpus": 1, "max_calls": 1, "apart": "gpu", **OF_TASK}
    assert _options.of_task({"_generator_backpressure_num_objects": 2, "_num_objects_per_yield": 3}) == \
        {"stream_window": 2, "num_objects_per_yield": 3, "wait_infeasible": True}
    assert _options.renamed({"num_return_vals": 2}) == {"num_returns": 2}


def test_each_label_condition_of_the_documents_is_one():
    for value in ("H100", "!H100", "in(H100, B200)", "!in(H100, B200)", ""):
        assert _options.wrong_labels({"ray.io/accelerator-type": value}) is None
    for value in ("in(H100,, B200)", "in(H100", "??"):
        assert _options.wrong_labels({"a": value})


def test_calls_that_do_not_fit():
    def g(a, b=2, *, c=3):
        pass

    class B:
        def m(self, a):
            pass

    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"d": 1}), ((1,), {"a": 1})):
        with pytest.raises(TypeError):
            ray.remote(g).remote(*args, **kwargs)
        with pytest.raises(TypeError):
            pickle.loads(pickle.dumps(_signature.arity(g))).check(args, kwargs)
    _signature.arity(g).check((1, 2), {"c": 4})
    with pytest.raises(TypeError):
        ray.remote(B).remote(1)
    with pytest.raises(TypeError):
        _signature.arity(B.m, is_method=True).check((), {})
    _signature.arity(B.m, is_method=True).check((1,), {})


def test_decorators_that_mean_nothing():
    with pytest.raises(TypeError):
        ray.remote()
    with pytest.raises(TypeError):
        ray.remote(3)
    with pytest.raises(TypeError):
        ray.remote(f, A)
    with pytest.raises(ValueError, match="at least one keyword"):
        ray.method()
    with pytest.raises(ValueError, match="no option of a method"):
        ray.method(nonsense=1)


def test_remote_things_are_not_called():
    with pytest.raises(TypeError, match=r"try 'f.remote\(\)'"):
        ray.remote(f)()
    with pytest.raises(TypeError, match=r"use 'A.remote\(\)'"):
        ray.remote(A)()
    with pytest.raises(ray.actor.ActorClassInheritanceException):
        type("B", (), {})       # a plain class may be made
        class B(ray.remote(A)):
            pass


def test_a_remote_function_looks_like_the_function():
    def g(a, b=2):
        """What g does."""
    r = ray.remote(g)
    assert (r.__name__, r.__doc__) == ("g", "What g does.") and str(r.__signature__) == "(a, b=2)"
