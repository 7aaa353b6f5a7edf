"""Settings of a host that would make it end by itself are refused."""

import pytest

from holdfast.errors import InvalidSetting
from holdfast.executor.settings import HostSettings


def test_a_driver_must_be_able_to_miss_a_report():
    conf = {"spark.holdfast.host.heartbeatInterval": "120s", "spark.holdfast.host.driverTimeout": "60s"}
    with pytest.raises(InvalidSetting, match=r"driverTimeout is 60 s .*heartbeatInterval 120 s.*three intervals"):
        HostSettings.parse(conf)
    assert HostSettings.parse({**conf, "spark.holdfast.host.driverTimeout": "6m"}).driver_timeout == 360
