"""Stands in for ray.data.tests."""
