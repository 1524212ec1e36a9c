"""ray.experimental.state: older name of ray.util.state."""
