"""ray._private.client_mode_hook: there is no client mode."""
import contextlib


def client_mode_should_convert(*_, **__):
    return False


@contextlib.contextmanager
def disable_client_hook():
    yield


enable_client_mode = disable_client_hook
