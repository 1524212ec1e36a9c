"""Stands in for ray._common in Ray's own tests."""
