"""ray._private.state_api_test_utils, as far as Ray's tests use it."""
from manta.ray._common.test_utils import wait_for_condition


def invoke_state_api(verify_cb, state_api_fn, *, state_stats=None, key_suffix=None, print_result=False, err_msg=None,
                     **kwargs):
    result = state_api_fn(**kwargs)
    assert verify_cb(result), err_msg or result
    return result


def invoke_state_api_n(verify_cb, state_api_fn, *, num_tries=5, **kwargs):
    wait_for_condition(lambda: verify_cb(state_api_fn(**kwargs)))


def verify_failed_task(name, error_type=None, error_message=None):
    from manta.ray.util.state import list_tasks
    return any(t["state"] == "FAILED" for t in list_tasks(filters=[("name", "=", name)]))


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
