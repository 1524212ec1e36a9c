"""Stands in for ray.train.v2: what it has under other names is manta.train's."""
