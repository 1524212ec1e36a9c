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
    (f, {"max_retries": 0.5}, TypeError, "max_retries=0.5 is of type float, expected one of int"),
    (f, {"max_retries": -2}, ValueError, "=-2, expected a whole number from 0 on, or -1"),
    (f, {"num_returns": -1}, ValueError, "num_returns=-1, expected a whole number"),
    (f, {"num_returns": "some"}, ValueError, "num_returns='some', expected a whole number"),
    (f, {"num_gpus": 1e-7}, ValueError, "expected 0 or a multiple of 0.0001"),
    (f, {"num_gpus": 1e-10}, ValueError, "expected 0 or a multiple of 0.0001"),
    (f, {"num_cpus": 0.00015}, ValueError, "expected 0 or a multiple of 0.0001"),
    (A, {"resources": {"disk": 1e-10}}, ValueError, "disk=1e-10 is no amount of a resource"),
    (f, {"num_cpus": float("inf")}, ValueError, "num_cpus=inf is no amount"),
    (f, {"num_cpus": float("nan")}, ValueError, "num_cpus=nan is no amount"),
    (f, {"num_cpus": -1}, ValueError, "num_cpus=-1 is negative"),
    (f, {"resources": {"CPU": 1}}, ValueError, "num_cpus"),
    (f, {"resources": {"memory": 1}}, ValueError, "memory"),
    (f, {"max_restarts": 1}, ValueError, "max_restarts= is no option of remote functions"),
    (f, {"nonsense": 1}, ValueError, "nonsense= is no option"),
    (f, {"retry_exceptions": [1]}, ValueError, "class of exceptions"),
    (A, {"max_restarts": -2}, ValueError, "=-2, expected a whole number from 0 on, or -1"),
    (A, {"max_retries": 1}, ValueError, "max_retries= is no option of actors"),
    (A, {"max_concurrency": 0}, ValueError, "max_concurrency"),
    (A, {"lifetime": "long"}, ValueError, "lifetime"),
    (A, {"get_if_exists": True}, ValueError, "nothing without name="),
    (A, {"label_selector": {"??": "x"}}, ValueError, "name of a label"),
    (A, {"label_selector": {"a": "matches(x)"}}, ValueError, "label_selector asks for a="),
    (A, {"label_selector": ""}, TypeError, "label_selector"),
    (A, {"fallback_strategy": [{"a": {}}]}, ValueError, "label_selector"),
    (f, {"runtime_env": {"env_vars": {"A": 1}}}, TypeError, "has 'A': 1, expected a text"),
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


@pytest.mark.parametrize("given, text", [({"address": 5}, "address is of type int, expected a text or None"),
                                         ({"job_config": 5}, "job_config is of type int, expected a JobConfig or a dict")])
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
    with pytest.raises(ValueError, match="nothing without an option"):
        ray.method()
    with pytest.raises(ValueError, match="no option of a method"):
        ray.method(nonsense=1)


def test_remote_things_are_not_called():
    with pytest.raises(TypeError, match=r"f.remote\(...\) calls it"):
        ray.remote(f)()
    with pytest.raises(TypeError, match=r"A.remote\(...\) starts an actor"):
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
