"""Values: what is put comes back as it was, of the same type, and as cheaply as it can."""
import collections
import enum
import gc
import math
import sys
import weakref

import numpy as np
import pytest

import manta

pytestmark = [pytest.mark.sanitized, pytest.mark.usefixtures("module_node")]


@manta.remote
def same(x):
    return x


@manta.remote
def describe(x):
    return type(x).__name__, repr(x)


class Number(enum.IntEnum):
    ONE = 1


Pair = collections.namedtuple("Pair", "a b")


class Text(str):
    pass


PLAIN = [None, True, False, 0, 1, -1, 127, 128, -128, -129, 2**31, 2**63 - 1, -2**63, 2**63, -2**63 - 1, 10**100, 0.0, -0.0, 1.5,
         float("inf"), 5e-324, "", "x", "ä\u20ac\U0001f600", "a\0b", "\ud800", "x" * 10000, b"", b"\0\1", b"x" * 100000,
         bytearray(b"abc"), 1 + 2j, ..., int, len]
CONTAINERS = [(), [], {}, (1,), [None, (True, [2.5, {"a": b"b"}])], {"k": {"k": {"k": [1, 2]}}}, {1: 2, None: 3, (1, 2): 4},
              set(), {1, 2}, frozenset([3]), collections.OrderedDict(a=1), collections.deque([1]), Pair(1, 2), Number.ONE,
              Text("t"), [2**80], ["\ud800"], [[[[[[[[[[1]]]]]]]]]], list(range(10000)), {str(i): i for i in range(1000)}, range(5)]


@pytest.mark.parametrize("value", PLAIN + CONTAINERS, ids=lambda v: repr(v)[:30])
def test_a_value_comes_back_as_it_was(value):
    for got in (manta.get(manta.put(value)), manta.get(same.remote(value)), manta.get(same.remote(x=value)),
                manta.get(same.remote(manta.put(value)))):
        assert type(got) is type(value)
        assert got == value
        assert repr(got) == repr(value)


def test_a_function_sees_the_types_that_were_given():
    for value in (Number.ONE, Pair(1, 2), Text("t"), (1, [2]), True, 1, None):
        assert manta.get(describe.remote(value)) == (type(value).__name__, repr(value))


def test_not_a_number_stays_none():
    assert math.isnan(manta.get(manta.put(float("nan"))))


def test_what_is_met_twice_is_one_object_afterwards():
    a = [1]
    x, y = manta.get(manta.put((a, a)))
    assert x is y
    loop = [1]
    loop.append(loop)
    got = manta.get(manta.put(loop))
    assert got[1] is got


def test_deep_nests_go_by_pickle():
    value = 1
    for _ in range(200):
        value = [value]
    assert manta.get(manta.put(value)) == value


ARRAYS = [np.arange(5), np.arange(5, dtype=np.int32), np.zeros(0), np.zeros((0, 3)), np.float32([[1, 2], [3, 4]]), np.array(3.5),
          np.zeros((3, 4), order="F") + 1, np.arange(20).reshape(4, 5)[::2, ::3], np.arange(10)[::-1], np.array([True, False]),
          np.arange(3, dtype=">i4"), np.array(["a", "bc"]), np.array([1 + 2j]), np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
          np.array([None, 1], dtype=object), np.arange(5, dtype=np.uint16), np.arange(5, dtype=np.int8), np.array([1.5], np.float16),
          np.array(["2020-01-01"], dtype="datetime64[D]"), np.arange(300000.0), np.zeros((300, 300), order="F"), np.ones((2,) * 10)]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_an_array_comes_back_as_it_was(array):
    for got in (manta.get(manta.put(array)), manta.get(same.remote(array)), manta.get(manta.put([array, 1]))[0],
                manta.get(same.remote({"x": array}))["x"]):
        assert type(got) is np.ndarray and got.dtype == array.dtype and got.shape == array.shape
        assert np.array_equal(got, array)


@pytest.mark.parametrize("scalar", [np.float32(1.5), np.int64(3), np.bool_(True), np.str_("x"), np.datetime64("2020-01-01")])
def test_scalars_of_numpy_stay_what_they_are(scalar):
    got = manta.get(same.remote(scalar))
    assert type(got) is type(scalar) and got == scalar


def test_masked_arrays_and_matrices_keep_their_class():
    masked = np.ma.array([1, 2, 3], mask=[0, 1, 0])
    got = manta.get(manta.put(masked))
    assert type(got) is type(masked) and got.sum() == 4
    assert type(manta.get(manta.put(np.asmatrix([[1]])))) is np.matrix


def test_what_get_returns_is_a_view_of_the_store():
    array = np.arange(1 << 16, dtype=np.float64)
    ref = manta.put(array)
    a, b = manta.get(ref), manta.get(ref)
    assert a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    assert a.__array_interface__["data"][0] % 64 == 0
    assert not a.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        a[0] = 1
    array[0] = 7
    assert a[0] == 0


def test_a_copy_can_be_written_to_and_changes_nothing():
    ref = manta.put([np.zeros(1 << 16), 1])
    mine = manta.get(ref, copy=True)
    mine[0][:] = 1
    assert manta.get(ref)[0].sum() == 0
    one = manta.put(np.zeros(10))
    manta.get(one, copy=True)[0] = 1
    assert manta.get(one)[0] == 0


def test_a_view_outlives_its_reference():
    ref = manta.put(np.full(1 << 17, 3.0))
    view = manta.get(ref)[100:]
    del ref
    for i in range(20):
        manta.put(np.full(1 << 17, float(i)))
    assert (view == 3.0).all()


def test_a_view_outlives_the_runtime():
    code_view = manta.get(manta.put(np.full(1 << 17, 5.0)))
    other = manta.get(manta.put([np.full(5000, 6.0), np.full(70000, 7.0)]))
    manta.shutdown()
    assert (code_view == 5.0).all() and (other[0] == 6.0).all() and (other[1] == 7.0).all()
    manta.init(num_cpus=2)
    manta.get(manta.put(np.zeros(1 << 17)))
    assert (code_view == 5.0).all()
    del code_view, other
    assert manta.get(manta.put(1)) == 1


def test_arguments_may_be_kept_by_an_actor():
    @manta.remote
    class Keeper:
        def keep(self, array):
            self.array = array

        def total(self):
            return float(self.array.sum())

    k = Keeper.remote()
    manta.get(k.keep.remote(np.ones(1 << 17)))
    for _ in range(10):
        manta.get(same.remote(np.zeros(1 << 17)))
    assert manta.get(k.total.remote()) == 1 << 17
    manta.get(k.keep.remote(manta.put(np.ones(1 << 17))))
    for _ in range(10):
        manta.put(np.zeros(1 << 17))
    assert manta.get(k.total.remote()) == 1 << 17


def test_large_arguments_are_views_of_the_store():
    @manta.remote
    def where(*arrays):
        found = []
        for array in arrays:
            at = array.__array_interface__["data"][0]
            with open("/proc/self/maps") as f:
                for line in f:
                    begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                    if begin <= at < end:
                        found.append(("memfd" in line or "/dev/zero" in line, bool(array.flags.writeable), float(array.sum())))
        return found

    large = np.ones(1 << 18)
    n = float(1 << 18)
    assert manta.get(where.remote(large, manta.put(large), np.ones(10))) == [(True, False, n), (True, False, n), (False, False, 10.0)]

    @manta.remote
    class Keeper:
        def __init__(self, array):
            self.first = array

        def keep(self, **arrays):
            self.arrays = arrays
            return 1

        def total(self):
            return [float(a.sum()) for a in (self.first, *self.arrays.values())]

    k = Keeper.remote(large)
    manta.get(k.keep.remote(a=large, b=manta.put(large), c=same.remote(large)))
    for _ in range(10):
        manta.get(same.remote(np.zeros(1 << 18)))
    assert manta.get(k.total.remote()) == [n] * 4


def test_references_travel_inside_values():
    inner = manta.put("inner")

    @manta.remote
    def open_all(x):
        return manta.get(x["refs"]) + [manta.get(x["more"][0])]

    assert manta.get(open_all.remote({"refs": [inner, inner], "more": (inner,)})) == ["inner"] * 3
    outer = manta.put([inner])
    del inner
    assert manta.get(manta.get(outer)[0]) == "inner"

    @manta.remote
    def make():
        return [manta.put(i) for i in range(3)]

    assert manta.get(manta.get(make.remote())) == [0, 1, 2]

    class Holder:
        def __init__(self, ref):
            self.ref = ref

    assert manta.get(manta.get(manta.put(Holder(manta.put(8)))).ref) == 8


def test_ten_thousand_references_in_one_value():
    refs = [manta.put(i) for i in range(10000)]
    got = manta.get(manta.put(refs))
    assert got == refs and manta.get(got[9999]) == 9999


def test_a_reference_is_not_pickled_outside_a_value():
    import pickle
    with pytest.raises(TypeError, match="only inside a value"):
        pickle.dumps(manta.put(1))
    with pytest.raises(TypeError, match="object already"):
        manta.put(manta.put(1))


def test_references_are_hashable_and_equal_by_object():
    a = manta.put(1)
    b = manta.get(manta.put([a]))[0]
    assert a == b and hash(a) == hash(b) and a is not b and len({a, b}) == 1
    assert a != manta.put(1) and a != 1 and len(a.hex()) == 16 and a.binary().hex() == a.hex()
    assert isinstance(a, manta.ObjectRef) and weakref.ref(a)() is a


def test_a_cycle_through_a_reference_is_freed():
    class Node:
        pass
    n = Node()
    n.self, n.ref = n, manta.put(np.zeros(1 << 17))
    gone = weakref.ref(n)
    del n
    gc.collect()
    assert gone() is None


def test_functions_and_classes_of_any_kind():
    y = 3

    class Local:
        def __init__(self, x):
            self.x = x

        def __eq__(self, other):
            return self.x == other.x

    assert manta.get(same.remote(lambda x: x + y))(1) == 4
    assert manta.get(same.remote(Local(5))).x == 5
    assert manta.get(describe.remote(Local(1)))[0] == "Local"


def test_what_cannot_be_pickled_says_so():
    import threading
    with pytest.raises(TypeError, match="pickle"):
        manta.put(threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        same.remote(threading.Lock())

    @manta.remote
    def lock():
        return threading.Lock()

    with pytest.raises(TypeError, match="pickle"):
        manta.get(lock.remote())


def test_pandas_and_pyarrow_tables():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": np.arange(100000), "b": ["x"] * 100000})
    assert manta.get(same.remote(frame)).equals(frame)
    table = pa.table({"a": np.arange(100000)})
    assert manta.get(same.remote(table)).equals(table)


def test_columns_of_tables_travel_beside_the_pickle():
    from manta import _values
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    n = 100000
    texts = pa.array(["x", None, "yz"] * n)
    frame = pd.DataFrame({"a": np.arange(n), "b": np.ones(n, np.float32), "c": pd.Categorical(["u", "v"] * (n // 2))})
    table = pa.table({"a": np.arange(n), "b": np.ones(n, np.float32), "c": pa.chunked_array([np.arange(10), np.arange(n - 10)])})
    for value in (frame, frame["a"], table, texts, table.to_batches()[0]):
        data, buffers = _values.dump(value)
        assert len(data) < 10000 and sum(b.raw().nbytes for b in buffers) >= n, type(value)
        got = manta.get(same.remote([value, 1]))[0]
        assert type(got) is type(value) and got.equals(value)
    got = manta.get(manta.put(frame), copy=True)
    got.loc[0, "a"] = 7
    assert got.loc[0, "a"] == 7 and frame.loc[0, "a"] == 0


def test_numpy_is_imported_only_when_it_is_needed(python):
    out = python("-c", "import sys, manta; manta.init(num_cpus=1); assert manta.get(manta.put([1, 2])) == [1, 2]; "
                       "assert 'numpy' not in sys.modules and 'cloudpickle' not in sys.modules; print('fine')")
    assert out.stdout == "fine\n", out.stderr


def test_many_arguments():
    @manta.remote
    def count(*args, **kwargs):
        return len(args), sorted(kwargs)

    assert manta.get(count.remote(*range(100), **{f"k{i}": i for i in range(50)})) == (100, sorted(f"k{i}" for i in range(50)))
    assert manta.get(count.remote(**{"odd name": 1, "": 2})) == (0, ["", "odd name"])


def test_large_arguments_beside_small_ones():
    @manta.remote
    def total(a, b, c, *, d):
        return float(a.sum()) + b + len(c) + float(d.sum())

    assert manta.get(total.remote(np.ones(200000), 1, b"x" * 100000, d=np.ones((500, 500)))) == 200000 + 1 + 100000 + 250000


assert sys.version_info >= (3, 11)
