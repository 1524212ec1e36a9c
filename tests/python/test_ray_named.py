"""Names of actors: which are refused."""
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
    with pytest.raises(ValueError, match="x already") as e:
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
    with pytest.raises(ValueError):
        ray.get_actor("x")


@pytest.mark.parametrize("init, text", [({"namespace": "a\0b"}, "without a NUL")])
def test_a_namespace_of_the_program_with_a_nul(init, text):
    import manta

    with pytest.raises(ValueError, match=text):
        manta.init(num_cpus=1, **init)
    assert not manta.is_initialized()
