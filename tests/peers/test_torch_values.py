"""Tensors of PyTorch as values: as they were, in memory of their own, and no more of it than they need."""
import pickle

import pytest
import torch

import manta
from manta import _values

pytestmark = pytest.mark.usefixtures("module_node")


@manta.remote
def same(x):
    return x


def blocks(value):
    """How many bytes travel beside the pickle, and how many in it."""
    data, buffers = _values.dump(value)
    return [b.raw().nbytes for b in buffers], len(data)


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
          torch.uint16, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [6, 6 * 50000])
def test_a_tensor_of_any_type(dtype, n):
    t = (torch.arange(n) % 7).reshape(2, 3, -1).to(dtype)
    assert blocks(t)[0] == [n * t.element_size()]
    for got in (manta.get(manta.put(t)), manta.get(same.remote(t)), manta.get(same.remote([t, 1]))[0], manta.get(manta.put(t), copy=True)):
        assert type(got) is torch.Tensor and got.dtype is dtype and got.shape == t.shape and got.stride() == t.stride()
        assert torch.equal(got.contiguous().view(torch.uint8), t.view(torch.uint8))


X = torch.arange(4 * 6 * 8, dtype=torch.float32).reshape(4, 6, 8)
SHAPES = {"transposed": X.transpose(0, 2), "slice": X[1:3, 2:], "one": X[2, 3, 4], "0-d": torch.tensor(3.5), "empty": torch.zeros(0),
          "empty 2-d": torch.zeros(3, 0, 2), "channels last": torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
          "expanded": torch.arange(3.0).expand(1000, 3), "steps": X[::2, :, ::3]}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_and_strides(name):
    t = SHAPES[name]
    for got in (manta.get(manta.put(t)), manta.get(same.remote({"x": t}))["x"]):
        assert torch.equal(got, t) and got.shape == t.shape and got.dtype == t.dtype
        assert got.stride() == t.stride() or name == "steps"


@pytest.mark.parametrize("n", [3, 1 << 18])
def test_writing_changes_no_object(n):
    t = torch.zeros(n)
    ref = manta.put(t)
    for first in (manta.get(ref), manta.get(ref, copy=True)):
        first += 1
        first.numpy()[0] = 5
        assert first[1] == 1 and first[0] == 5
        assert torch.equal(manta.get(ref), torch.zeros(n))
    t += 1
    assert torch.equal(manta.get(ref), torch.zeros(n))

    @manta.remote
    def write(x):
        x += 1
        return x

    assert torch.equal(manta.get(write.remote(ref)), torch.ones(n)) and torch.equal(manta.get(ref), torch.zeros(n))
    assert torch.equal(manta.get(write.remote(t)), torch.full((n,), 2.0)) and torch.equal(t, torch.ones(n))


def test_a_view_leaves_the_rest_of_its_storage_behind():
    large = torch.zeros(1 << 20)
    assert blocks(large[:10])[0] == [40]
    assert blocks(large.view(1024, 1024)[:, 5])[0] == [4096]
    assert blocks([large[:10], large[-10:]])[0] == [40, 40]
    assert blocks(large[::2])[1] < 1000
    got = manta.get(manta.put(large.view(1024, 1024)[:, 5]))
    assert got.untyped_storage().nbytes() == 4096


def test_tensors_that_share_memory_share_it_afterwards():
    base = torch.zeros(1 << 16)
    assert sum(blocks([base, base[5:10], base.view(256, 256).T, base.detach()])[0]) == base.nbytes
    whole, part, turned, alias = manta.get(same.remote([base, base[5:10], base.view(256, 256).T, base.detach()]))
    whole[6] = 3
    assert part[1] == 3 and turned[6, 0] == 3 and alias[6] == 3
    part.fill_(1)
    assert whole.sum() == 5 and manta.get(manta.put((base, base[:1])))[0].sum() == 0
    part, whole = manta.get(manta.put((base[100:], base)))
    whole[100] = 7
    assert part[0] == 7
    one, again = manta.get(manta.put([base, base]))
    assert one is again


def test_views_of_other_types_share_memory():
    raw = torch.zeros(1024, dtype=torch.uint8)
    a, b, c = manta.get(manta.put((raw[3:], raw[8:24].view(torch.float64), raw[40:44].view(torch.bfloat16))))
    b[0] = 1.0
    c[1] = 1.0
    assert a[5:13].sum() == torch.tensor([1.0], dtype=torch.float64).view(torch.uint8).sum() and a[39:41].sum() == 0x3F + 0x80


def test_parameters_and_modules():
    p = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    p.name_of_mine = ["x"]
    got = manta.get(same.remote(p))
    assert type(got) is torch.nn.Parameter and not got.requires_grad and got.name_of_mine == ["x"] and torch.equal(got, p)

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(30, 30)
            self.b = torch.nn.Linear(30, 30)
            self.b.weight = self.a.weight
            self.register_buffer("seen", torch.zeros(3, dtype=torch.bfloat16))

    model = Tied()
    assert sorted(blocks(model)[0]) == sorted([30 * 30 * 4, 30 * 4, 30 * 4, 3 * 2])
    got, state = manta.get(same.remote((model, model.state_dict())))
    assert got.a.weight is got.b.weight and got.a.weight.requires_grad and type(got.a.weight) is torch.nn.Parameter
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    with torch.no_grad():
        got.a.weight.fill_(2)
    assert state["b.weight"][0, 0] == 2
    got.a(torch.ones(1, 30)).sum().backward()
    assert got.a.weight.grad is not None


def test_gradients_and_flags():
    leaf = torch.ones(3, requires_grad=True)
    out = leaf * 2
    got, result = manta.get(manta.put([leaf, out]))
    assert got.requires_grad and result.requires_grad and torch.equal(result, out) and result.is_leaf
    assert not manta.get(manta.put(out.detach())).requires_grad
    z = torch.tensor([1 + 2j]).conj()
    assert torch.equal(manta.get(manta.put(z)), z) and torch.equal(manta.get(manta.put(z.imag)), z.imag)
    t = torch.ones(2)
    t.tag = {"k": t}
    got = manta.get(manta.put(t))
    assert got.tag["k"] is got


def test_what_has_no_plain_memory_goes_as_torch_sends_it():
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(manta.get(same.remote(sparse)).to_dense(), torch.eye(3))
    quantized = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, torch.qint8)
    assert torch.equal(manta.get(same.remote(quantized)).dequantize(), quantized.dequantize())
    assert manta.get(manta.put(torch.zeros(3, device="meta"))).device.type == "meta"


class Mine(torch.Tensor):
    pass


def test_a_class_of_the_programs_own_stays_one():
    t = torch.ones(4).as_subclass(Mine)
    got = manta.get(manta.put(t))
    assert type(got) is Mine and torch.equal(got, t)

    class Local:
        def __init__(self, t):
            self.t, self.part = t, t[2:]

    large = torch.zeros(1 << 16)
    got = manta.get(same.remote(Local(large)))
    got.t[2] = 9
    assert got.part[0] == 9 and blocks(Local(large))[1] < 10000


def test_pickles_of_the_program_are_left_alone():
    manta.put(torch.ones(3))
    data = pickle.dumps(torch.ones(3))
    assert b"manta" not in data and b"torch._utils" in data


class Made:
    """Makes the tensors that it is pickled as, each time anew."""

    def __init__(self, sizes):
        self.sizes = sizes

    def __reduce__(self):
        t = torch.ones(self.sizes.pop())
        return sum_of, (t, t[:3])


def sum_of(t, part):
    return float(t.sum()), part.data_ptr() == t.data_ptr()


def test_tensors_that_live_no_longer_than_their_pickle():
    assert manta.get(manta.put(Made([5, 1 << 16]))) == (5.0, False)
    assert manta.get(manta.put(Made([1 << 16, 5]))) == (65536.0, False)


def test_references_beside_tensors_that_share_memory():
    base = torch.zeros(100)
    got = manta.get(manta.put([manta.put("x"), base, base[:5], manta.put("y")]))
    assert manta.get(got[0]) == "x" and manta.get(got[3]) == "y"


def test_a_function_that_captures_a_tensor():
    t = torch.arange(5.0)

    @manta.remote
    def total(n):
        return (t * n).sum()

    assert manta.get(total.remote(2)) == 20


def test_what_was_got_outlives_the_node(python):
    out = python("""
import manta, torch
manta.init(num_cpus=1)
t = manta.get(manta.put(torch.ones(1 << 18)))
manta.shutdown()
t += 1
print(float(t.sum()))
""")
    assert out == f"{2.0 * (1 << 18)}\n"
