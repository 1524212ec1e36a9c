"""ray._common.utils, as far as Ray's tests use it."""
import asyncio
import binascii


def hex_to_binary(text):
    return binascii.unhexlify(text)


def binary_to_hex(data):
    return binascii.hexlify(data).decode()


def get_or_create_event_loop():
    try:
        return asyncio.get_event_loop_policy().get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        return loop


def reset_ray_address():
    pass


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
