"""ray._private.ray_constants, as far as Ray's tests use it."""
ID_SIZE = 8
DEFAULT_RESOURCES = {"CPU", "GPU", "memory", "object_store_memory"}
RAY_OVERRIDE_DASHBOARD_URL = "RAY_OVERRIDE_DASHBOARD_URL"
KV_NAMESPACE_FUNCTION_TABLE = b"fun"
MEMORY_RESOURCE_UNIT_BYTES = 1
DASHBOARD_AGENT_DIED_ERROR = "dashboard_agent_died"
WORKER_DIED_PUSH_ERROR = "worker_died"
WORKER_CRASH_PUSH_ERROR = "worker_crash"
PICKLING_LARGE_OBJECT_PUSH_ERROR = "pickling_large_object"
DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES = 200 * 10 ** 9


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
