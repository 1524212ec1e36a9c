"""Stands in for ray._private in Ray's own tests."""
