"""ray._private.auto_init_hook: whether a call may start a node."""
enable_auto_connect = True


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
