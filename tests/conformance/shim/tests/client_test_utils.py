"""ray.tests.client_test_utils"""


def create_remote_signal_actor(ray):
    from manta.ray._common.test_utils import SignalActor
    return SignalActor
