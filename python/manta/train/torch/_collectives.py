"""The backend "manta" of torch.distributed: a process group over the collectives of manta/comm.h.

    the loop's threads ── jobs ──▶ a thread of the group ── Ranks, without the interpreter ──▶ other ranks
            ▲                                  │
            └────────── futures ───────────────┘

A collective is a job: what is to be done with which memory, and what to copy back then. The thread does jobs in their
order and completes their futures, so that gradients travel while others are computed. Messages between two ranks are
started and looked after, since the other side may send before it receives.

The first torch that lets Python write a backend like this and was tried is 2.15.
"""
from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as distributed
from torch._C._distributed_c10d import Backend, Work

from manta import _manta

BARRIER, ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, RECEIVE = range(9)
_BYTES = 6
_TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3, torch.int32: 4, torch.int64: 5,
          torch.uint8: _BYTES, torch.bool: 7}
_SUM, _MEAN, _MIN, _MAX, _PRODUCT = range(5)
_LOOK_S = 0.0002        # between two looks at messages under way


def _reduction(op: Any, dtype: torch.dtype) -> tuple[int, int]:
    """(reduction, type) for an operation of torch on a type."""
    kinds = distributed.ReduceOp
    known = {kinds.SUM: _SUM, kinds.AVG: _MEAN, kinds.MIN: _MIN, kinds.MAX: _MAX, kinds.PRODUCT: _PRODUCT}
    of_bools = {kinds.SUM: _MAX, kinds.MAX: _MAX, kinds.BOR: _MAX, kinds.MIN: _MIN, kinds.PRODUCT: _MIN, kinds.BAND: _MIN}
    table = of_bools if dtype == torch.bool else known
    kind = next((v for k, v in table.items() if op == k), None)
    if kind is None or dtype not in _TYPES:
        raise TypeError(f"the backend manta does not reduce {dtype} by {op}; TorchConfig(backend=\"gloo\") may")
    return kind, _BYTES if dtype == torch.bool else _TYPES[dtype]


class Done(Work):  # type: ignore[misc]
    """A collective that was asked for. errors: what it has failed with, then."""

    def __init__(self, future: Any, errors: Sequence[BaseException] = ()) -> None:
        super().__init__()
        self._future, self._errors = future, errors

    def wait(self, timeout: Any = None) -> bool:
        try:
            self._future.wait()
        except RuntimeError:
            for error in self._errors:      # the future's own has the text of it among others
                raise error from None
            raise
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return bool(self._future.done())

    def is_success(self) -> bool:
        if not self._future.done():
            return False
        try:
            self._future.value()
            return True
        except Exception:  # noqa: BLE001  it has failed
            return False

    def exception(self) -> Any:
        try:
            self._future.value()
            return None
        except Exception as e:  # noqa: BLE001  that is what was asked
            return e

    def result(self) -> Any:
        return self._future.value()

    def get_future(self) -> Any:
        return self._future


class Failed:
    """What the first future of a job that has failed is completed with."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _checked(first: Any) -> Any:
    """The result of a job. What is raised here is an error for torch's own code as well, which waits for gradients; the
    exception of Future.set_exception() is one for Python alone, and a value to others."""
    value = first.value()
    if isinstance(value, Failed):
        raise value.error
    return value


class Job:
    """One collective, on its way through the thread."""

    def __init__(self, kind: int, source: Optional[torch.Tensor], target: Optional[torch.Tensor], n: int, dtype: int,
                 reduction: int = _SUM, peer: int = 0, after: Optional[Callable[[], None]] = None, result: Any = None) -> None:
        self.call = (kind, source.data_ptr() if source is not None else 0, target.data_ptr() if target is not None else 0,
                     n, dtype, reduction, peer)
        self.keep = (source, target)
        self.after, self.result = after, result
        self.errors: list[BaseException] = []
        self._first: Any = torch.futures.Future()
        self.future: Any = self._first.then(_checked)

    def finish(self, error: Optional[BaseException]) -> None:
        try:
            if error is None and self.after is not None:
                self.after()
        except Exception as e:  # noqa: BLE001  whoever waits is told
            error = e
        if error is not None:
            self.errors.append(error)
        self._first.set_result(self.result if error is None else Failed(error))


class Thread(threading.Thread):
    """Does the jobs of a group, in their order."""

    def __init__(self, ranks: Any) -> None:
        super().__init__(name="manta-collectives", daemon=True)
        self._ranks = ranks
        self._jobs: queue.SimpleQueue[Optional[Job]] = queue.SimpleQueue()
        self._messages: list[tuple[int, Job]] = []
        self.start()

    def add(self, job: Job) -> Done:
        self._jobs.put(job)
        return Done(job.future, job.errors)

    def end(self) -> None:
        self._jobs.put(None)
        self.join()
        self._ranks.close()
        for _, job in self._messages:       # their memory is the program's again
            job.finish(RuntimeError("the process group was destroyed before this message had arrived"))

    def run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_LOOK_S if self._messages else None)
            except queue.Empty:
                self._look()
                continue
            if job is None:
                return
            self._do(job)

    def _do(self, job: Job) -> None:
        try:
            if job.call[0] in (SEND, RECEIVE):
                self._messages.append((self._ranks.start(*job.call), job))
                self._look()
                return
            self._ranks.run(*job.call)
        except Exception as e:  # noqa: BLE001  whoever waits is told
            job.finish(e)
        else:
            job.finish(None)

    def _look(self) -> None:
        """Completes the messages that have arrived."""
        left = []
        for work, job in self._messages:
            if not self._ranks.test(work):
                left.append((work, job))
                continue
            try:
                self._ranks.wait(work)
            except Exception as e:  # noqa: BLE001  whoever waits is told
                job.finish(e)
            else:
                job.finish(None)
        self._messages = left


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as one row of memory; a copy where it is not one."""
    if tensor.device.type != "cpu":
        raise TypeError(f"the backend manta has tensors of processors, given one on {tensor.device}: name nccl")
    if tensor.is_sparse:
        raise TypeError("the backend manta has no sparse tensors; TorchConfig(backend=\"gloo\") has")
    return tensor.detach().contiguous().view(-1)


def _back(row: torch.Tensor, to: torch.Tensor) -> Optional[Callable[[], None]]:
    """What copies a row to the tensor that it stands for; None: it is that memory."""
    if row.data_ptr() == to.data_ptr():
        return None

    def copy() -> None:
        to.detach().copy_(row.view(to.shape))
    return copy


def _moving(row: torch.Tensor, n: int) -> tuple[int, int]:
    """(elements, type) by which n elements are moved: bytes where there is no such type."""
    known = _TYPES.get(row.dtype)
    return (n, known) if known is not None else (n * row.element_size(), _BYTES)


def _check_sizes(name: str, parts: torch.Tensor, one: torch.Tensor, size: int) -> None:
    """Refuses memory of other lengths: `parts` is to have a part as large as `one` for each rank."""
    if parts.dtype != one.dtype or parts.numel() != size * one.numel():
        raise ValueError(f"{name}: {parts.numel()} elements of {parts.dtype} and {one.numel()} of {one.dtype}, expected one "
                         f"type, and {size} times as many in the first")


class No:
    """What this backend cannot: false for who reads it in Python, and for torch, which calls it."""

    def __bool__(self) -> bool:
        return False

    def __call__(self) -> bool:
        return False


class MantaBackend(Backend):  # type: ignore[misc]
    """A process group. Ranks are those of the group."""

    def __init__(self, rank: int, size: int, ranks: Any) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._thread: Optional[Thread] = Thread(ranks)

    supports_coalescing = supports_splitting = supports_shrinking = supports_tensor_alloc = supports_time_estimate = No()
    supports_window = supports_reconfigure = No()

    def getBackendName(self) -> str:
        return "manta"

    def _get_backend_name(self) -> str:
        return "manta"

    def name(self) -> str:
        return "manta"

    def _add(self, *args: Any, **kwargs: Any) -> Done:
        if self._thread is None:
            raise RuntimeError("the process group was destroyed")
        return self._thread.add(Job(*args, **kwargs))

    # ---- reductions ----

    def _reduce(self, kind: int, tensor: torch.Tensor, op: Any, root: int) -> Done:
        row = _flat(tensor)
        reduction, dtype = _reduction(op, row.dtype)
        return self._add(kind, row, row, row.numel(), dtype, reduction, root, after=_back(row, tensor), result=[tensor])

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Done:
        return self._reduce(ALL_REDUCE, tensors[0], opts.reduceOp if opts is not None else distributed.ReduceOp.SUM, 0)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Done:
        return self._each(tensors, lambda t: self.allreduce([t], opts))

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> Done:
        return self._reduce(REDUCE, tensors[0], opts.reduceOp, opts.rootRank)

    def _each(self, tensors: Sequence[Any], do: Callable[[Any], Done]) -> Done:
        works = [do(t) for t in tensors]
        future = torch.futures.collect_all([w.get_future() for w in works])
        return Done(future.then(lambda all: [one for w in all.value() for one in w.value()]))

    def reduce_scatter_tensor(self, output: torch.Tensor, source: torch.Tensor, opts: Any) -> Done:
        row, out = _flat(source), _flat(output)
        _check_sizes("reduce_scatter", row, out, self._size)
        reduction, dtype = _reduction(opts.reduceOp, row.dtype)
        return self._add(REDUCE_SCATTER, row, out, out.numel(), dtype, reduction, after=_back(out, output), result=[output])

    _reduce_scatter_base = reduce_scatter_single = reduce_scatter_tensor

    def reduce_scatter_tensor_coalesced(self, outputs: Sequence[torch.Tensor], sources: Sequence[torch.Tensor],
                                        opts: Any) -> Done:
        return self._each(list(zip(outputs, sources)), lambda p: self.reduce_scatter_tensor(p[0], p[1], opts))

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def reduce_scatter(self, outputs: Sequence[torch.Tensor], sources: Sequence[Sequence[torch.Tensor]], opts: Any) -> Done:
        return self.reduce_scatter_tensor(outputs[0], torch.cat([_flat(t) for t in sources[0]]), opts)

    # ---- moves ----

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any) -> Done:
        row = _flat(tensors[0])
        n, dtype = _moving(row, row.numel())
        return self._add(BROADCAST, row, row, n, dtype, peer=opts.rootRank, after=_back(row, tensors[0]), result=[tensors[0]])

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Done:
        row, out = _flat(source), _flat(output)
        _check_sizes("all_gather", out, row, self._size)
        n, dtype = _moving(row, row.numel())
        return self._add(ALL_GATHER, row, out, n, dtype, after=_back(out, output), result=[output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Sequence[torch.Tensor], sources: Sequence[torch.Tensor],
                                    opts: Any = None) -> Done:
        return self._each(list(zip(outputs, sources)), lambda p: self.all_gather_single(p[0], p[1], opts))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gathered(self, source: torch.Tensor, outputs: Optional[Sequence[torch.Tensor]]) -> Done:
        row = _flat(source)
        every = torch.empty(self._size * row.numel(), dtype=row.dtype)
        n, dtype = _moving(row, row.numel())

        def divide() -> None:
            for part, to in zip(every.chunk(self._size) if row.numel() else [], outputs or ()):
                to.detach().copy_(part.view(to.shape))
        return self._add(ALL_GATHER, row, every, n, dtype, after=divide, result=list(outputs or ()))

    def allgather(self, outputs: Sequence[Sequence[torch.Tensor]], sources: Sequence[torch.Tensor], opts: Any = None) -> Done:
        sizes = {t.numel() for t in outputs[0]}
        if sizes != {sources[0].numel()}:
            raise ValueError(f"all_gather: this rank gives {sources[0].numel()} elements and takes {sorted(sizes)}; all are equal")
        return self._gathered(sources[0], outputs[0])

    def allgather_coalesced(self, outputs: Sequence[Sequence[torch.Tensor]], sources: Sequence[torch.Tensor],
                            opts: Any = None) -> Done:
        return self._each(list(zip(zip(*outputs), sources)), lambda p: self._gathered(p[1], p[0]))

    def gather(self, outputs: Sequence[Sequence[torch.Tensor]], sources: Sequence[torch.Tensor], opts: Any) -> Done:
        return self._gathered(sources[0], outputs[0] if self._rank == opts.rootRank else None)

    def scatter(self, outputs: Sequence[torch.Tensor], sources: Sequence[Sequence[torch.Tensor]], opts: Any) -> Done:
        n = outputs[0].numel()
        row = (torch.cat([_flat(t) for t in sources[0]]) if self._rank == opts.rootRank
               else torch.empty(self._size * n, dtype=outputs[0].dtype))

        def take() -> None:
            outputs[0].detach().copy_(row[self._rank * n:(self._rank + 1) * n].view(outputs[0].shape))
        count, dtype = _moving(row, row.numel())
        return self._add(BROADCAST, row, row, count, dtype, peer=opts.rootRank, after=take, result=[outputs[0]])

    def alltoall_base(self, output: torch.Tensor, source: torch.Tensor, out_splits: Sequence[int], in_splits: Sequence[int],
                      opts: Any = None) -> Done:
        out, row = _flat(output), _flat(source)
        if out.dtype != row.dtype:
            raise ValueError(f"all_to_all: {row.dtype} into {out.dtype}, expected one type")
        if not out_splits and not in_splits:
            if out.numel() != row.numel() or row.numel() % self._size:
                raise ValueError(f"all_to_all: {row.numel()} elements into {out.numel()}, expected equally many, in "
                                 f"{self._size} equal parts")
            n, dtype = _moving(row, row.numel() // self._size)
            return self._add(ALL_TO_ALL, row, out, n, dtype, after=_back(out, output), result=[output])
        per_in = row.numel() // source.shape[0] if source.numel() else 1
        per_out = out.numel() // output.shape[0] if output.numel() else 1
        ins = [k * per_in for k in in_splits] or [row.numel() // self._size] * self._size
        outs = [k * per_out for k in out_splits] or [out.numel() // self._size] * self._size
        back = _back(out, output)
        return self._uneven(list(row.split(ins)), list(out.split(outs)), back, [output])

    all_to_all_single = alltoall_base

    def alltoall(self, outputs: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], opts: Any = None) -> Done:
        rows = [_flat(t) for t in outputs]

        def back() -> None:
            for row, to in zip(rows, outputs):
                copy = _back(row, to)
                if copy is not None:
                    copy()
        return self._uneven([_flat(t) for t in sources], rows, back, list(outputs))

    def _uneven(self, sources: list[torch.Tensor], targets: list[torch.Tensor], back: Optional[Callable[[], None]],
                result: Any) -> Done:
        """Parts of different lengths, each in a place as long as the longest of all ranks."""
        longest = torch.tensor([max(t.numel() for t in (*sources, *targets))])
        self._reduce(ALL_REDUCE, longest, distributed.ReduceOp.MAX, 0).wait()
        each = int(longest)
        row = torch.zeros(self._size * each, dtype=sources[0].dtype)
        out = torch.empty_like(row)
        for i, part in enumerate(sources):
            row[i * each:i * each + part.numel()] = part

        def take() -> None:
            for i, part in enumerate(targets):
                part.copy_(out[i * each:i * each + part.numel()])
            if back is not None:
                back()
        n, dtype = _moving(row, each)
        return self._add(ALL_TO_ALL, row, out, n, dtype, after=take, result=result)

    def barrier(self, opts: Any = None) -> Done:
        return self._add(BARRIER, None, None, 0, 0, result=[])

    # ---- messages ----

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int) -> Done:
        self._refuse_tag(tag)
        row = _flat(tensors[0])
        n, dtype = _moving(row, row.numel())
        return self._add(SEND, row, None, n, dtype, peer=dst, result=[])

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int) -> Done:
        self._refuse_tag(tag)
        row = _flat(tensors[0])
        n, dtype = _moving(row, row.numel())
        return self._add(RECEIVE, None, row, n, dtype, peer=src, after=_back(row, tensors[0]), result=[tensors[0]])

    def _refuse_tag(self, tag: int) -> None:
        if tag:
            raise NotImplementedError("the backend manta has no tags of messages; TorchConfig(backend=\"gloo\") has")

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int) -> Done:
        raise NotImplementedError("the backend manta receives from a rank that is named; TorchConfig(backend=\"gloo\") from any")

    # ---- the end ----

    def shutdown(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()

    def abort(self) -> None:
        self.shutdown()


_ADDRESS = "manta/address"


def _make(options: Any, more: Any = None) -> MantaBackend:
    """Joins a group: rank 0 says where the ranks meet."""
    rank, size = options.group_rank, options.group_size
    wait_ms = int(options.timeout.total_seconds() * 1000)
    folder = None
    if rank == 0:
        folder = tempfile.mkdtemp(prefix="manta-ranks-")
        options.store.set(_ADDRESS, folder)
    at = options.store.get(_ADDRESS).decode()
    try:
        ranks = _manta.Ranks("unix:" + os.path.join(at, "s"), rank, size, wait_ms, wait_ms)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return MantaBackend(rank, size, ranks)


def register() -> None:
    """Makes "manta" a backend of torch.distributed in this process. A second call changes nothing.

        register()
        torch.distributed.init_process_group("manta", store=store, rank=0, world_size=2)
    """
    if not hasattr(distributed.Backend, "MANTA"):
        distributed.Backend.register_backend("manta", _make, extended_api=True, devices=["cpu"])
