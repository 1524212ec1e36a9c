"""Stands in for ray.train.v2.api."""
