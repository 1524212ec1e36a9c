"""ray.util.collective: groups of actors and tasks, their collectives, and what ends them."""
import os
import signal

import numpy as np
import pytest

from conftest import DEADLINE_S, until

LONG_MS = DEADLINE_S * 1000


def make_member(ray):
    @ray.remote(num_cpus=0)
    class Member:
        def join(self, size, rank, name="g", backend="gloo", timeout=LONG_MS):
            from manta.ray.util import collective
            collective.init_collective_group(size, rank, backend, name, timeout)
            return collective.get_rank(name), collective.get_collective_group_size(name)

        def call(self, function, *args, **kwargs):
            from manta.ray.util import collective
            out = getattr(collective, function)(*args, **kwargs)
            return out if isinstance(out, (int, bool)) else None

        def on(self, function, array, *args, **kwargs):
            """The array after the collective."""
            from manta.ray.util import collective
            array = np.array(array, copy=True)
            getattr(collective, function)(array, *args, **kwargs)
            return array

        def gather(self, array, size, name="g"):
            from manta.ray.util import collective
            out = [np.empty_like(array) for _ in range(size)]
            collective.allgather(out, array, name)
            return np.stack(out)

        def scatter(self, arrays, name="g"):
            from manta.ray.util import collective
            out = np.empty_like(arrays[0])
            collective.reducescatter(out, list(arrays), name)
            return out

        def pid(self):
            return os.getpid()
    return Member


@pytest.fixture
def collective():
    from manta.ray.util import collective
    return collective


@pytest.fixture
def members(ray):
    """members(n): that many actors, in a group "g" unless name is None."""
    def make(n, name="g"):
        cls = make_member(ray)
        out = [cls.remote() for _ in range(n)]
        if name is not None:
            assert ray.get([m.join.remote(n, i, name) for i, m in enumerate(out)]) == [(i, n) for i in range(n)]
        return out
    return make


def each(ray, members, call):
    return ray.get([call(m, i) for i, m in enumerate(members)], timeout=DEADLINE_S)


SIZES = [1, 1000, 300_000]      # within one cache line, one block, and more than is packed or copied at once


@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_collective(ray, members, n):
    group = members(n)
    for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8"):
        for size in SIZES if n == 3 else SIZES[:2]:
            rows = [((np.arange(size) % 5) + i).astype(dtype) for i in range(n)]
            total = sum(rows[1:], rows[0]).astype(dtype)
            for out in each(ray, group, lambda m, i: m.on.remote("allreduce", rows[i], "g")):
                np.testing.assert_array_equal(out, total)
            outs = each(ray, group, lambda m, i: m.on.remote("reduce", rows[i], n - 1, "g"))
            for i, out in enumerate(outs):
                np.testing.assert_array_equal(out, total if i == n - 1 else rows[i])
            for out in each(ray, group, lambda m, i: m.on.remote("broadcast", rows[i], 1, "g")):
                np.testing.assert_array_equal(out, rows[1])
            for out in each(ray, group, lambda m, i: m.gather.remote(rows[i], n)):
                np.testing.assert_array_equal(out, np.stack(rows))
            outs = each(ray, group, lambda m, i: m.scatter.remote([rows[i] + np.asarray(j, dtype) for j in range(n)]))
            for i, out in enumerate(outs):
                np.testing.assert_array_equal(out, (total + np.asarray(i * n, dtype)).astype(dtype))
            sent = group[0].on.remote("send", rows[0], n - 1, "g")
            received = group[n - 1].on.remote("recv", np.zeros_like(rows[0]), 0, "g")
            np.testing.assert_array_equal(ray.get([sent, received])[1], rows[0])
    each(ray, group, lambda m, i: m.call.remote("barrier", "g"))


def test_reductions_and_types(ray, members, collective):
    pair, op = members(2), collective.ReduceOp
    rows = np.array([[1, 5], [3, 2]], "float32")
    for how, expected in ((op.SUM, [4, 7]), (op.PRODUCT, [3, 10]), (op.MIN, [1, 2]), (op.MAX, [3, 5]), (op.AVERAGE, [2, 3.5])):
        for out in each(ray, pair, lambda m, i: m.on.remote("allreduce", rows[i], "g", how)):
            assert out.tolist() == expected
    for dtype in ("bool", "int8", "uint16", "complex64"):       # which are moved, and not reduced
        assert each(ray, pair, lambda m, i: m.on.remote("broadcast", np.array([i, 1], dtype), 1, "g"))[0].tolist() == [1, 1]
        with pytest.raises(TypeError, match=f"does not reduce elements of {dtype}"):
            each(ray, pair, lambda m, i: m.on.remote("allreduce", np.array([i, 1], dtype), "g"))
    empty = each(ray, pair, lambda m, i: m.on.remote("allreduce", np.empty(0, "float32"), "g"))
    assert [out.size for out in empty] == [0, 0]
    with pytest.raises(ValueError, match="expected one of ReduceOp.SUM"):
        each(ray, pair, lambda m, i: m.on.remote("allreduce", rows[i], "g", "sum"))


def test_tensors_of_torch(ray, members):
    pytest.importorskip("torch")
    pair = members(2)

    def add(self, rank):
        import torch
        from manta.ray.util import collective
        out = []
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            tensor = torch.full((3,), rank + 1, dtype=dtype)
            collective.allreduce(tensor, "g")
            parts = [torch.empty(3, dtype=dtype) for _ in range(2)]
            collective.allgather(parts, tensor + rank, "g")
            out.append((tensor.tolist(), [p.tolist() for p in parts]))
        with pytest.raises(ValueError, match="contiguous"):
            collective.allreduce(torch.zeros(2, 3).t(), "g")
        with pytest.raises(ValueError, match="resolve_conj"):
            collective.broadcast(torch.zeros(2, dtype=torch.complex64).conj(), 0, "g")
        return out
    for out in each(ray, pair, lambda m, i: m.__ray_call__.remote(add, i)):
        assert out == [([3] * 3, [[3] * 3, [4] * 3])] * 3


def test_what_cannot_be_written_is_refused(ray, members):
    pair = members(2)

    def refused(self):
        from manta.ray.util import collective
        fixed = np.zeros(3)
        fixed.flags.writeable = False
        for wrong, kind, text in ((fixed, ValueError, "read-only"), (np.zeros((2, 2)).T, ValueError, "C order"),
                                  ([1, 2], TypeError, "given list"), (np.array(["a"]), TypeError, "str"),
                                  (np.zeros(2, ">f4"), TypeError, "byte order"), (np.array([None]), TypeError, "object")):
            with pytest.raises(kind, match=text):
                collective.allreduce(wrong, "g")
        for parts in ([np.zeros(3)], [np.zeros(3), np.zeros(2)], [np.zeros(3), np.zeros(3, "f4")], np.zeros((2, 3))):
            with pytest.raises(ValueError, match="list"):
                collective.allgather(parts, np.zeros(3), "g")
            with pytest.raises(ValueError, match="list"):
                collective.reducescatter(np.zeros(3), parts, "g")
        for peer in (2, -1, "a", collective.get_rank("g")):
            with pytest.raises(ValueError, match="rank"):
                collective.send(np.zeros(1), peer, "g")
        with pytest.raises(ValueError, match="no rank 5"):
            collective.broadcast(np.zeros(1), 5, "g")
        for name in ("allreduce", "reduce", "broadcast", "allgather", "reducescatter", "send", "recv"):
            with pytest.raises(NotImplementedError, match=f"{name}_multigpu"):
                getattr(collective, name + "_multigpu")([np.zeros(1)])
    each(ray, pair, lambda m, i: m.__ray_call__.remote(refused))
    each(ray, pair, lambda m, i: m.call.remote("barrier", "g"))         # the group goes on


def test_ranks_that_do_different_things_are_told(ray, members):
    pair = members(2)
    refs = [m.on.remote("allreduce", np.zeros(2 + i), "g") for i, m in enumerate(pair)]
    for ref in refs:
        with pytest.raises(ValueError, match="collective group 'g'.*rank"):
            ray.get(ref, timeout=DEADLINE_S)
    each(ray, pair, lambda m, i: m.call.remote("barrier", "g"))


def test_two_groups_at_once(ray, members):
    all_three = members(3)
    ray.get([m.join.remote(2, i, "pair", "auto") for i, m in enumerate(all_three[1:])])
    assert ray.get([m.call.remote("get_rank", "pair") for m in all_three]) == [-1, 0, 1]
    ones = np.ones(4)
    assert [o[0] for o in each(ray, all_three[1:], lambda m, i: m.on.remote("allreduce", ones, "pair"))] == [2, 2]
    assert [o[0] for o in each(ray, all_three, lambda m, i: m.on.remote("allreduce", ones, "g"))] == [3, 3, 3]


def test_a_group_is_made_again_under_its_name(ray, members):
    pair = members(2)
    for turn in range(5):
        each(ray, pair, lambda m, i: m.call.remote("destroy_collective_group", "g"))
        assert ray.get([m.call.remote("is_group_initialized", "g") for m in pair]) == [False, False]
        assert ray.get([m.call.remote("get_collective_group_size", "g") for m in pair]) == [-1, -1]
        pair.reverse()
        ray.get([m.join.remote(2, i) for i, m in enumerate(pair)])
        assert each(ray, pair, lambda m, i: m.on.remote("broadcast", np.array([i + turn]), 1, "g"))[0][0] == 1 + turn
    ray.get(pair[0].call.remote("destroy_collective_group", "none"))


def test_a_rank_that_is_killed(ray, members):
    three = members(3)
    pid = ray.get(three[1].pid.remote())
    refs = [m.on.remote("allreduce", np.ones(3), "g") for m in (three[0], three[2])]
    os.kill(pid, signal.SIGKILL)
    for ref in refs:
        with pytest.raises(RuntimeError, match="rank 1"):
            ray.get(ref, timeout=DEADLINE_S)
    with pytest.raises(RuntimeError, match="rank 1"):       # it is broken until it is destroyed
        ray.get(three[0].call.remote("barrier", "g"), timeout=DEADLINE_S)
    pair = [three[0], three[2]]
    ray.get([m.call.remote("destroy_collective_group", "g") for m in pair])
    ray.get([m.join.remote(2, i) for i, m in enumerate(pair)])
    assert [o[0] for o in each(ray, pair, lambda m, i: m.on.remote("allreduce", np.ones(1), "g"))] == [2, 2]


def test_a_rank_that_leaves(ray, members):
    stays, leaves = members(2)
    ref = stays.call.remote("barrier", "g")
    ray.get(leaves.call.remote("destroy_collective_group", "g"))
    with pytest.raises(RuntimeError, match="rank 1"):
        ray.get(ref, timeout=DEADLINE_S)


def test_nothing_is_left_of_a_rank_that_is_killed_while_it_waits(ray, members):
    import manta
    from manta.ray.util.collective._group import address_of
    first, second, third = members(3, None)
    name = address_of(manta.context()["node"], ray.get_runtime_context().namespace, "g", None).removeprefix("unix:")

    def is_there():
        with open("/proc/net/unix") as f:
            return name in f.read()
    pid = ray.get(first.pid.remote())
    waits = first.join.remote(2, 0)
    until(is_there, "rank 0")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(waits, timeout=DEADLINE_S)
    until(lambda: not is_there(), "the end of rank 0")
    assert ray.get([second.join.remote(2, 0), third.join.remote(2, 1)], timeout=DEADLINE_S) == [(0, 2), (1, 2)]


def test_who_does_not_come_is_named(ray, members):
    lonely, other = members(2, None)
    with pytest.raises(TimeoutError, match="missing: .*1"):
        ray.get(lonely.join.remote(2, 0, "g", "gloo", 50), timeout=DEADLINE_S)
    with pytest.raises(TimeoutError, match="missing: rank 0"):
        ray.get(other.join.remote(2, 1, "g", "gloo", 50), timeout=DEADLINE_S)


def test_a_rank_that_does_not_take_part_is_not_waited_for_beyond_the_limit(ray, members):
    pair, limit_ms, are_together = members(2, None), 250, False
    while not are_together:         # the limit holds for meeting too: a busy machine wants a longer one
        limit_ms *= 2
        refs = [m.join.remote(2, i, "g", "gloo", limit_ms) for i, m in enumerate(pair)]
        ray.wait(refs, num_returns=2)
        are_together = ray.get([m.call.remote("is_group_initialized", "g") for m in pair]) == [True, True]
        if not are_together:
            ray.get([m.call.remote("destroy_collective_group", "g") for m in pair])
    with pytest.raises(TimeoutError):
        ray.get(pair[0].call.remote("barrier", "g"), timeout=DEADLINE_S)


def test_names_ranks_and_backends_that_are_refused(ray, members, collective):
    one, two = members(2, None)
    ray.get(one.join.remote(1, 0, "alone"))
    assert ray.get(one.on.remote("allreduce", np.ones(2), "alone")).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="is in the group .* already"):
        ray.get(one.join.remote(1, 0, "alone"))
    assert not collective.is_group_initialized("alone")         # here, in the driver
    ray.get(one.join.remote(np.int64(1), np.int32(0), "of numpy"))
    assert ray.get(one.on.remote("broadcast", np.ones(2), np.int8(0), "of numpy")).tolist() == [1, 1]
    for size, rank in ((2, 2), (2, -1), (0, 0), (2, 1.5)):
        with pytest.raises(ValueError, match="expected"):
            ray.get(one.join.remote(size, rank))
    for backend in ("nccl", "mpi"):
        with pytest.raises(NotImplementedError, match=backend):
            ray.get(one.join.remote(2, 0, "g", backend))
    with pytest.raises(ValueError, match="smoke"):
        ray.get(one.join.remote(2, 0, "g", "smoke"))
    with pytest.raises(ValueError, match="group_name"):
        ray.get(one.join.remote(2, 0, ""))
    with pytest.raises(ValueError, match="gloo_timeout"):
        ray.get(one.join.remote(2, 0, "g", "gloo", 0))
    with pytest.raises(RuntimeError, match="in no collective group 'g'"):
        ray.get(two.call.remote("barrier", "g"))
    with pytest.raises(RuntimeError, match="actors and tasks"):
        collective.init_collective_group(1, 0)
    refs = [m.join.remote(2 + i, i, "sizes") for i, m in enumerate((one, two))]
    with pytest.raises(ValueError, match="rank 1 is in a group of 3"):
        ray.get(refs[1], timeout=DEADLINE_S)


def test_tasks(ray):
    @ray.remote(num_cpus=0)
    def work(rank, size, name, leaves):
        from manta.ray.util import collective
        collective.init_collective_group(size, rank, "gloo", name, LONG_MS)
        array = np.full(1000, rank + 1.0)
        collective.allreduce(array, name)
        if leaves:
            collective.destroy_collective_group(name)
        return array[0]

    for leaves in (True, False, False, True):       # a task that has not left is over all the same
        assert ray.get([work.remote(i, 3, "tasks", leaves) for i in range(3)], timeout=DEADLINE_S) == [6, 6, 6]


def test_a_group_that_the_driver_declares(ray, members, collective):
    pair = members(2, None)
    collective.create_collective_group(pair, 2, [1, 0], "gloo", "declared", LONG_MS)
    assert ray.get([m.call.remote("is_group_initialized", "declared") for m in pair]) == [False, False]
    outs = each(ray, pair, lambda m, i: m.on.remote("broadcast", np.array([i]), 0, "declared"))
    assert [o[0] for o in outs] == [1, 1]
    assert ray.get([m.call.remote("get_rank", "declared") for m in pair]) == [1, 0]
    with pytest.raises(RuntimeError, match="declared already"):
        collective.create_collective_group(pair, 2, [0, 1], "gloo", "declared")
    for _ in range(3):
        ray.get([m.call.remote("destroy_collective_group", "declared") for m in pair])
        collective.create_collective_group(pair, 2, [0, 1], "auto", "declared", LONG_MS)
        assert each(ray, pair, lambda m, i: m.on.remote("allreduce", np.ones(1), "declared"))[1][0] == 2
    ray.get([m.call.remote("destroy_collective_group", "declared") for m in pair])
    collective.create_collective_group(pair, 2, [0, 1], "auto", "taken back")
    collective.destroy_collective_group("taken back")
    with pytest.raises(RuntimeError, match="in no collective group"):
        ray.get(pair[0].call.remote("barrier", "taken back"))
    until(lambda: not ray.util.list_named_actors(), "the end of what was declared")


def test_a_rank_that_leaves_late_takes_no_later_declaration_back(ray, members, collective):
    early, late = members(2, None), members(2, None)
    for group in early, late:
        collective.create_collective_group(group, 2, [0, 1], "auto", "again", LONG_MS)
        if group is early:
            each(ray, group, lambda m, i: m.on.remote("allreduce", np.ones(1), "again"))
            ray.get(group[0].call.remote("destroy_collective_group", "again"))
    ray.get(early[1].call.remote("destroy_collective_group", "again"))
    assert each(ray, late, lambda m, i: m.on.remote("allreduce", np.ones(1), "again"))[1][0] == 2
    collective.destroy_collective_group("again")


def test_declarations_that_are_refused(ray, members, collective):
    pair = members(2, None)
    for actors, size, ranks in ((pair, 2, [0]), (pair, 2, [0, 2]), (pair, 3, [0, 1]), (pair, 2, [1, 1]), ([], 0, []), (pair, 2, ["0", 1]),
                                ([pair[0], pair[0]], 2, [0, 1])):
        with pytest.raises(RuntimeError, match="rank"):
            collective.create_collective_group(actors, size, ranks)
    with pytest.raises(TypeError, match="handles of actors"):
        collective.create_collective_group([1], 1, [0])
    with pytest.raises(NotImplementedError, match="nccl"):
        collective.create_collective_group(pair, 2, [0, 1], "nccl")
    assert not ray.util.list_named_actors()


def test_names_of_backends(collective):
    assert collective.Backend("GLOO") == collective.Backend.GLOO and collective.types.ReduceOp is collective.ReduceOp
    assert collective.gloo_available() and not collective.nccl_available()
