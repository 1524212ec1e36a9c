"""ray.data.tests.conftest: what tests of Train import from there."""
import pytest

from manta.data import DataContext


@pytest.fixture
def restore_data_context():
    """The context of datasets is after the test what it was before."""
    before = DataContext.get_current().copy()
    yield
    DataContext._set_current(before)
