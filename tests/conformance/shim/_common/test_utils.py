"""ray._common.test_utils, as far as Ray's tests use it; written here."""
import asyncio
import inspect
import subprocess
import sys
import time

import manta.ray as ray


@ray.remote(num_cpus=0)
class SignalActor:
    """Some wait, one sends."""

    def __init__(self):
        self.event = asyncio.Event()
        self.waiting = 0

    async def send(self, clear=False):
        self.event.set()
        if clear:
            self.event.clear()

    async def wait(self, should_wait=True):
        if should_wait:
            self.waiting += 1
            await self.event.wait()
            self.waiting -= 1

    async def cur_num_waiters(self):
        return self.waiting


@ray.remote(num_cpus=0)
class Semaphore:
    def __init__(self, value=1):
        self.semaphore = asyncio.Semaphore(value)

    async def acquire(self):
        await self.semaphore.acquire()

    async def release(self):
        self.semaphore.release()

    async def locked(self):
        return self.semaphore.locked()


def wait_for_condition(condition_predictor, timeout=10, retry_interval_ms=100, raise_exceptions=False, **kwargs):
    """Asks until the answer is yes; RuntimeError when the time is over."""
    end, last = time.monotonic() + timeout, None
    while time.monotonic() <= end:
        try:
            if condition_predictor(**kwargs):
                return
        except Exception as e:
            if raise_exceptions:
                raise
            last = e
        time.sleep(retry_interval_ms / 1000)
    raise RuntimeError(f"the condition did not come about in {timeout} s; last: {last!r}")


async def async_wait_for_condition(condition_predictor, timeout=10, retry_interval_ms=100, **kwargs):
    end, last = time.monotonic() + timeout, None
    while time.monotonic() <= end:
        try:
            answer = condition_predictor(**kwargs)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return
        except Exception as e:
            last = e
        await asyncio.sleep(retry_interval_ms / 1000)
    raise RuntimeError(f"the condition did not come about in {timeout} s; last: {last!r}")


def run_string_as_driver(driver_script, env=None, encode="utf-8", timeout=50):
    """Runs a program's text in an interpreter of its own; what it printed."""
    done = subprocess.run([sys.executable, "-"], input=driver_script.encode(encode), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=env, timeout=timeout)
    text = done.stdout.decode(encode, errors="replace")
    if done.returncode:
        print(text)
        raise subprocess.CalledProcessError(done.returncode, done.args, text)
    return text


def is_named_tuple(cls):
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
