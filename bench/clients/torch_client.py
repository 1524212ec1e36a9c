#!/usr/bin/env python3
"""PyTorch and Manta exchange weights: what torch.load() and load_state_dict() say of our files, and we of theirs.

    VENV/bin/python bench/clients/torch_client.py --manta build/release/manta

VENV has torch and torchvision. PyTorch is too large for ./check, which tests the same on recorded files
(tests/golden/files); this runs the live library. Exit status 1 when a check fails.
"""
import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import zipfile

import numpy
import torch
import torchvision

CHECKS = []


def check(f):
    CHECKS.append(f)
    return f


class Manta:
    def __init__(self, program):
        self.program = os.path.abspath(program)

    def __call__(self, *args):
        done = subprocess.run([self.program, *args], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"manta {' '.join(args)}: {done.stdout}{done.stderr}"

    def refuses(self, *args):
        done = subprocess.run([self.program, *args], capture_output=True, text=True, timeout=300)
        assert done.returncode == 1, f"manta {' '.join(args)}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def predict(self, model, weights, images):
        numpy.save("x.npy", images)
        self("predict", model, "--weights", weights, "--input", "x.npy", "--output", "y.npy", "--raw")   # as given: no normalising of the zoo
        return torch.from_numpy(numpy.load("y.npy"))


def same(a, b):
    """Two dictionaries of tensors, in the same order and bit for bit."""
    assert list(a) == list(b), (list(a), list(b))
    for k in a:
        assert a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and torch.equal(a[k], b[k]), k


def load_all_ways(path):
    """Every way in which torch.load() takes a file gives the same; the safest one's."""
    plain = torch.load(path, weights_only=True)
    same(plain, torch.load(path, weights_only=True, mmap=True))
    same(plain, torch.load(path, weights_only=False))
    assert not torch.serialization.get_unsafe_globals_in_checkpoint(path)
    return plain


def resnet18():
    """torchvision's, as the zoo has it, with statistics that are not the initial ones."""
    torch.manual_seed(7)
    m = torchvision.models.resnet18(num_classes=10)
    m.conv1 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    for name, t in m.state_dict().items():
        if name.endswith("running_var"):
            t.uniform_(0.5, 2)
        elif name.endswith("running_mean") or name.endswith("bias"):
            t.normal_(0, 0.1)
    return m.eval()


@check
def every_type_and_view(manta):
    x = torch.arange(24.0).reshape(4, 6)
    theirs = {"plain": x, "turned": x.t(), "part": x[1:, ::2], "half": x.half(), "bf16": x.bfloat16(), "i32": x.int(),
              "i64": x.long(), "u8": x.byte(), "flags": x > 3, "f64": x.double(), "none": torch.zeros(0, 3),
              "scalar": torch.tensor(2.5), "parameter": torch.nn.Parameter(x), "repeated": x[:1].expand(3, 6)}
    torch.save(theirs, "t.pt")
    manta("convert", "t.pt", "o.pt")
    same({k: v.detach() for k, v in theirs.items()}, load_all_ways("o.pt"))


@check
def state_dict_with_metadata(manta):
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten(), torch.nn.Linear(8, 3))
    torch.save(net.state_dict(), "t.pt")
    manta("convert", "t.pt", "o.pt")
    same(dict(net.state_dict()), load_all_ways("o.pt"))
    print(net.load_state_dict(torch.load("o.pt", weights_only=True), strict=True), end=" ")


@check
def checkpoint_with_optimizer(manta):
    net = torch.nn.Linear(3, 2)
    o = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 3)).sum().backward()
    o.step()
    torch.save({"model": net.state_dict(), "optimizer": o.state_dict(), "epoch": 3}, "t.pt")
    manta("convert", "t.pt", "o.pt")
    got = load_all_ways("o.pt")
    assert torch.equal(got["model.weight"], net.weight)
    assert torch.equal(got["optimizer.state.0.exp_avg"], o.state_dict()["state"][0]["exp_avg"])


@check
def resnet18_both_ways(manta):
    net = resnet18()
    images = torch.rand(8, 28, 28)
    torch.save(net.state_dict(), "t.pt")
    manta("convert", "t.pt", "o.npz", "--like", "resnet18")
    with torch.no_grad():
        want = net(images[:, None])
    got = manta.predict("resnet18", "o.npz", images.numpy())
    worst = (want - got).abs().max().item()
    assert worst < 1e-4, f"outputs differ by {worst}"
    manta("convert", "o.npz", "back.pt", "--like", "resnet18")
    back = load_all_ways("back.pt")
    same(net.state_dict(), back)
    other = resnet18()
    other.load_state_dict(back, strict=True)
    with torch.no_grad():
        assert torch.equal(other(images[:, None]), want)
    print(f"outputs differ by {worst:.1e} of {want.abs().max().item():.1f},", end=" ")


@check
def flattened_map(manta):
    """mnist-cnn: a dense layer behind a flattened map, in PyTorch's order of channels; matched by order."""
    torch.manual_seed(8)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(21632, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    images = torch.rand(8, 28, 28)
    torch.save({"state_dict": net.state_dict()}, "t.pt")
    manta("convert", "t.pt", "o.npz", "--like", "mnist-cnn")
    with torch.no_grad():
        want = net(images[:, None])
    worst = (want - manta.predict("mnist-cnn", "o.npz", images.numpy())).abs().max().item()
    assert worst < 1e-4, f"outputs differ by {worst}"
    manta("convert", "o.npz", "back.pt", "--like", "mnist-cnn")
    back = load_all_ways("back.pt")
    for (a, x), (b, y) in zip(net.state_dict().items(), back.items()):
        assert torch.equal(x, y), (a, b)
    print(f"outputs differ by {worst:.1e},", end=" ")


@check
def malicious(manta):
    class Run:
        def __reduce__(self):
            return os.system, ("touch owned",)

    class Evaluate:
        def __reduce__(self):
            return eval, ("open('owned', 'w')",)

    for thing, name in [({"w": Run()}, "system"), ({"w": Evaluate()}, "eval"), (torch.nn.Linear(1, 1), "torch.nn")]:
        torch.save(thing, "t.pt")
        try:
            torch.load("t.pt", weights_only=True)
            raise AssertionError("torch took it")
        except pickle.UnpicklingError:
            pass
        said = manta.refuses("convert", "t.pt", "o.pt")
        assert name in said, said
        assert not os.path.exists("owned") and not os.path.exists("o.pt")


@check
def other_kinds(manta):
    torch.save({"w": torch.ones(1)}, "t.pt", _use_new_zipfile_serialization=False)
    assert "1.6" in manta.refuses("convert", "t.pt", "o.pt")
    torch.save({"w": torch.ones(1, dtype=torch.int16)}, "t.pt")
    assert "ShortStorage" in manta.refuses("convert", "t.pt", "o.pt")
    torch.jit.script(torch.nn.Linear(1, 1)).save("t.pt")
    assert "TorchScript" in manta.refuses("convert", "t.pt", "o.pt")


@check
def archive(manta):
    """Members are stored, whole, and the storages aligned, as mmap=True needs it."""
    torch.save({str(i): torch.rand(i) for i in range(20)}, "t.pt")
    manta("convert", "t.pt", "o.pt")
    with zipfile.ZipFile("o.pt") as z:
        assert z.testzip() is None
        assert all(i.compress_type == zipfile.ZIP_STORED for i in z.infolist())
    reader = torch._C.PyTorchFileReader("o.pt")
    assert all(reader.get_record_offset(f"data/{i}") % 64 == 0 for i in range(20))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manta", default="build/release/manta", help="the program")
    manta = Manta(parser.parse_args().manta)
    failed = 0
    for f in CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            here = os.getcwd()
            os.chdir(folder)
            print(f.__name__ + ":", end=" ", flush=True)
            try:
                f(manta)
                print("ok")
            except Exception as why:  # every check is to be run, whatever an earlier one met
                failed += 1
                print(f"FAILED: {type(why).__name__}: {why}")
            finally:
                os.chdir(here)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks hold (torch {torch.__version__}, "
          f"torchvision {torchvision.__version__})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
