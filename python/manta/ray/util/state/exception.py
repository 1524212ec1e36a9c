"""ray.util.state.exception"""


class RayStateApiException(Exception):
    """A question about the node that has no answer."""


class DataSourceUnavailable(RayStateApiException):
    """The node does not answer."""
