"""ray.air.integrations."""
