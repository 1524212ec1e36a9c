"""ray._common.network_utils, as far as Ray's tests use it."""
import socket


def build_address(host, port):
    return f"{host}:{port}"


def parse_address(address):
    host, colon, port = address.rpartition(":")
    return (host, port) if colon else None


def find_free_port(*_):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
