"""Stands in for ray.tests."""
