"""ray._private.utils, as far as Ray's tests use it."""


def format_error_message(exception_message, task_exception=False):
    return exception_message


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
