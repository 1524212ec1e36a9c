"""Results that come one by one: what a call that yields returns, and how a worker makes them."""
import functools
import time
from _pickle import loads

from manta import _code, _dialect, _manta


class ObjectRefGenerator:
    """The results of a function that yields, as references, one by one.

        for ref in numbers.remote(3):
            print(manta.get(ref))
    """

    def __init__(self, stream):
        self._stream = stream
        self._end = stream.end()
        self._ended = False

    def __iter__(self):
        return self

    def __next__(self):
        return self._next(None)

    def _next(self, timeout):
        if self._ended:
            raise StopIteration
        ref = self._stream.next(timeout)
        if ref is None or ref == self._end:
            self._ended = True
        if ref is None:
            raise StopIteration
        return ref

    def _is_ready(self, timeout):
        """Whether next() would not wait, now or within some seconds; nothing is taken."""
        return self._ended or self._stream.ready(timeout) is not False

    def completed(self):
        """A reference that is ready when the function has ended; get() raises what it raised."""
        return self._end

    def is_finished(self):
        """Whether the function has ended and all items were taken."""
        return self._ended

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self._is_ready(0):
            from manta import _aio
            await _aio.in_thread(self._is_ready, None)
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    def close(self):
        """Cancels the call if it still runs."""
        self._ended = True
        self._stream.close()

    def __reduce__(self):
        raise TypeError(f"{type(self).__name__} cannot be pickled: the items come to the process that made the call")


class DynamicObjectRefGenerator:
    """What num_returns="dynamic" gives: references to all that a generator yielded, once it has ended."""

    def __init__(self, refs):
        self._refs = refs

    def __iter__(self):
        while self._refs:
            yield self._refs.pop(0)  # whoever iterates has it now

    def __len__(self):
        return len(self._refs)


# ---- waiting ----

STEP_S = 0.01  # in which the first that is not ready is waited for, and after which the others are looked at


def wait(waitables, num_returns, timeout):
    """wait() where some are generators."""
    if not 1 <= num_returns <= len(waitables):
        raise ValueError(f"num_returns is {num_returns}, expected 1 to {len(waitables)}, the number of references")
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        refs = [w for w in waitables if not isinstance(w, ObjectRefGenerator)]
        there = set(_manta.wait(refs, len(refs), 0)[0]) if refs else ()
        ready = [w for w in waitables if (w._is_ready(0) if isinstance(w, ObjectRefGenerator) else w in there)]
        left = None if end is None else end - time.monotonic()
        if len(ready) >= num_returns or (left is not None and left <= 0):
            ready = ready[:num_returns]
            return ready, [w for w in waitables if w not in ready]
        first = next(w for w in waitables if w not in ready)
        step = STEP_S if left is None else min(STEP_S, left)
        if isinstance(first, ObjectRefGenerator):
            first._is_ready(step)
        else:
            _manta.wait([first], 1, step)


# ---- in a worker ----

@functools.lru_cache(maxsize=256)
def how(data):
    """What a call says besides its arguments (src/python/results.c has the names)."""
    _code.join_job()  # it may name classes of the program
    return loads(data)


def items(out, how):
    """What a call that yields yields; all of it, as one value, of one that is "dynamic"."""
    out = _dialect.current.bounded(out)
    return _collected(out, how) if "dynamic" in how else iter(out)


def _collected(out, how):
    refs = []
    try:
        for item in out:
            refs.append(_manta.put(item))
    except Exception as e:
        if isinstance(e, how.get("retry", ())):
            raise
        refs.append(_failed(e))
    return DynamicObjectRefGenerator(refs)


def _failed(error):
    """A reference that raises what the generator raised."""
    from manta import _failures
    return _raiser().remote(_failures.describe(error, _manta.context()["function"])[1])


@functools.cache
def _raiser():
    from manta import _core

    def raise_it(payload):
        from manta import _failures
        raise _failures._remade(payload, "")
    return _core.remote_function(raise_it, num_cpus=0, max_retries=0)


def linger(deferred):
    """Ends a call when all its items were taken."""
    import threading

    def run():
        _manta.yield_taken(deferred)
        _manta.finish(deferred, None, None)
    threading.Thread(target=run, name="manta-items", daemon=True).start()
