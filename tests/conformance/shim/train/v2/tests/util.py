"""ray.train.v2.tests.util: stands in for what is made of Ray's insides."""


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
