"""Names of actors: which are refused, and what the view of the node says of them."""
import json

import pytest

LONGEST = "n" * 63
WHAT_IS_WRONG = "expected a text without a NUL, of at most 63 bytes"


@pytest.fixture
def named(ray):
    @ray.remote(num_cpus=0)
    class Named:
        def one(self):
            return 1
    return Named


@pytest.fixture
def local():
    import manta.ray

    manta.ray.init(local_mode=True)
    yield manta.ray
    manta.ray.shutdown()


def test_a_name_that_is_taken(ray, named):
    first = named.options(name="x").remote()
    with pytest.raises(ValueError, match="name 'x' is already taken") as e:
        named.options(name="x").remote()
    assert type(e.value) is ray.exceptions.ActorAlreadyExistsError
    assert ray.get(first.one.remote()) == 1


def test_a_name_that_is_taken_in_local_mode(local):
    @local.remote
    class A:
        pass

    first = A.options(name="x").remote()
    with pytest.raises(local.exceptions.ActorAlreadyExistsError):
        A.options(name="x").remote()
    del first


@pytest.mark.parametrize("option", ["name", "namespace"])
@pytest.mark.parametrize("text", ["x\0one", LONGEST + "n", "ä" * 32])
def test_names_that_cannot_be_kept_are_refused_at_creation(ray, named, option, text):
    with pytest.raises(ValueError, match=WHAT_IS_WRONG):
        named.options(**{"name": "x", option: text}).remote()
    assert ray.util.list_named_actors(all_namespaces=True) == []


@pytest.mark.parametrize("init, text", [({"namespace": "a\0b"}, "without a NUL")])
def test_a_namespace_of_the_program_with_a_nul(init, text):
    import manta

    with pytest.raises(ValueError, match=text):
        manta.init(num_cpus=1, **init)
    assert not manta.is_initialized()


def everything(ray):
    """All that is made of the view of the node."""
    state = ray.util.state
    return [state.list_tasks(), state.list_workers(), state.list_objects(), state.list_jobs(), state.summarize_tasks(),
            state.summarize_actors(), ray.timeline()]


def test_names_and_namespaces_are_told_apart(ray, named):
    here = ray.get_runtime_context().namespace
    kept = [named.options(name="one").remote(), named.options(name="two/2", namespace="other").remote(), named.remote()]
    ray.get([k.one.remote() for k in kept])
    assert ray.util.list_named_actors() == ["one"]
    both = sorted(ray.util.list_named_actors(all_namespaces=True), key=lambda row: row["name"])
    assert both == [{"name": "one", "namespace": here}, {"name": "two/2", "namespace": "other"}]
    rows = {(row["name"], row["ray_namespace"]) for row in ray.util.state.list_actors()}
    assert rows == {("one", here), ("two/2", "other"), ("", here)}


def test_the_longest_names(ray, named, python):
    import manta

    space = "s" * 63
    kept = [named.options(name=LONGEST).remote(), named.options(name=LONGEST, namespace=space).remote()]
    ray.get([k.one.remote() for k in kept])
    assert ray.util.list_named_actors() == [LONGEST]
    assert {"name": LONGEST, "namespace": space} in ray.util.list_named_actors(all_namespaces=True)
    everything(ray)
    done = python("-m", "manta", "ps", "--json", "--node", manta.node_info()["daemon_pid"])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    actors = [(row["name"], row["namespace"], row["constructor"]) for row in rows if row["kind"] == "actor"]
    assert sorted(actors)[-1][:2] == (LONGEST, space) and len(actors) == 2, done.stderr
    assert all("Named" in shown and not shown.startswith("py.") for _, _, shown in actors), actors


def test_local_mode_has_a_view(local):
    @local.remote
    class A:
        pass

    kept = A.options(name="x").remote()
    assert local.util.list_named_actors() == [] and local.util.state.list_actors() == []
    everything(local)
    del kept


STARTED = """
import manta.ray as ray
ray.init(address="auto", namespace="here")
@ray.remote
class A:
    def names(self): return ray.util.list_named_actors()
a = A.options(name="one").remote()
assert ray.get(a.names.remote()) == ["one"]
assert ray.util.list_named_actors() == ["one"]
assert [row["name"] for row in ray.util.state.list_actors()] == ["one"]
ray.util.state.list_tasks()
ray.timeline()
print("fine")
"""


def test_a_node_that_was_started_has_a_view(python, short_path):
    env = {"XDG_RUNTIME_DIR": str(short_path)}
    started = python("-m", "manta", "start", "--num-cpus", 2, env=env)
    assert started.returncode == 0, started.stderr
    try:
        out = python("-c", STARTED, env=env)
    finally:
        python("-m", "manta", "stop", env=env)
    assert out.stdout == "fine\n", out.stdout + out.stderr


JOINED = """
import subprocess, sys
import manta.ray as ray
if sys.argv[1:] == ["another"]:
    ray.init(address="local", num_cpus=1)
    ray.get(ray.remote(lambda: 1).remote())
    try: subprocess.run([sys.executable, __file__, "join"], check=True, stderr=subprocess.PIPE, text=True)
    except subprocess.CalledProcessError as e: print(e.stderr.splitlines()[-1])
    sys.exit()
if len(sys.argv) > 1:
    ray.init(address="auto", namespace="here")
    keeper = ray.get_actor("keeper")
    assert ray.get(keeper.keep.remote(6)) == [5, 6]
    assert ray.get(ray.remote(lambda x: x + 1).remote(1)) == 2
    print("joined")
    sys.exit()
for address in ("auto", "/nowhere/node.sock", "127.0.0.1:6379"):
    try: ray.init(address=address)
    except ConnectionError as e: assert "no node to join" in str(e), e
    else: raise SystemExit(f"{address} was joined")
try: ray.init(address="auto", num_cpus=-1)
except ValueError: pass
ray.init(num_cpus=2, namespace="here")
@ray.remote
class Keeper:
    def __init__(self): self.kept = []
    def keep(self, x):
        self.kept.append(x)
        return self.kept
keeper = Keeper.options(name="keeper").remote()
ray.get(keeper.keep.remote(5))
subprocess.run([sys.executable, __file__, "join"], check=True)
subprocess.run([sys.executable, __file__, "another"], check=True)
print(ray.get(keeper.keep.remote(7)), flush=True)
"""


def test_another_program_joins_the_node_of_one(python, tmp_path, short_path):
    """As `auto` finds whatever runs on a host; who joined leaves, and the node stays its program's."""
    (tmp_path / "program.py").write_text(JOINED)
    out = python(tmp_path / "program.py", env={"XDG_RUNTIME_DIR": str(short_path)})
    joined, refused, kept = out.stdout.splitlines()
    assert (joined, kept) == ("joined", "[5, 6, 7]"), out.stdout + out.stderr
    assert refused.startswith("ConnectionError: no node to join: 2 nodes run"), refused
