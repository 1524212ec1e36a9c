"""What workers print, in a program whose sys.stdout or sys.stderr is not the process's own: in a notebook, under a test.

The runtime writes to the descriptors of the process, which such programs do not look at. So there Python writes, on a
thread of the runtime's, to what the streams are at that moment.
"""
import codecs
import sys
import threading

from manta import _manta

_here = threading.local()  # shows: on the runtime's thread
_decoders = {n: codecs.getincrementaldecoder("utf-8")("replace") for n in (1, 2)}


def choose():
    """Before a node begins: who shows what its workers print."""
    _manta.show_prints(sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__)


def show(number, data):
    """Of standard output (1) or error (2)."""
    _here.shows = True
    stream = sys.stdout if number == 1 else sys.stderr
    text = _decoders[number].decode(data)
    if stream is not None:
        stream.write(text)
        stream.flush()


def is_here():
    """Whether this thread is the one that shows: shutdown() waits for it, so that it must not wait for shutdown()."""
    return getattr(_here, "shows", False)
