import pytest
from sample_ids import Clock

from holdfast.driver.coordinator import StateStoreCoordinator


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def coordinator(clock):
    return StateStoreCoordinator(clock, report_interval=5.0)
