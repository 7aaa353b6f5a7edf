"""Where stores are: scenarios of Spark's StateStoreCoordinatorSuite, and leases, which Spark does not have."""

import logging
from dataclasses import replace

import pytest
from sample_ids import HOST_A, HOST_B, NEXT_RUN, RUN, attempt, provider

LEASE = 15.0


def test_report_verify_and_get_location(coordinator):
    store = provider()
    assert not coordinator.verify_if_instance_active(store, "exec1")
    assert coordinator.get_location(store) is None

    coordinator.report_active_instance(store, "hostX", "exec1")
    assert coordinator.verify_if_instance_active(store, "exec1")
    assert coordinator.get_location(store) == "executor_hostX_exec1"

    coordinator.report_active_instance(store, "hostX", "exec2")
    assert not coordinator.verify_if_instance_active(store, "exec1")
    assert coordinator.verify_if_instance_active(store, "exec2")
    assert coordinator.get_location(store) == "executor_hostX_exec2"


def test_deactivating_a_run_leaves_the_others(coordinator):
    first, other_run, second = provider(0), provider(0, NEXT_RUN, root="/y/state"), provider(1)
    for store in (first, other_run, second):
        coordinator.report_active_instance(store, "hostX", "exec1")

    coordinator.deactivate_instances(RUN)
    assert [coordinator.verify_if_instance_active(each, "exec1") for each in (first, other_run, second)] == [
        False,
        True,
        False,
    ]
    assert coordinator.get_location(first) is None
    assert coordinator.get_location(other_run) == "executor_hostX_exec1"

    coordinator.deactivate_instances(NEXT_RUN)
    assert coordinator.get_location(other_run) is None


def test_reports_do_not_bring_back_what_was_deactivated(coordinator):
    stores = (provider(0), provider(0, NEXT_RUN, root="/y/state"))
    coordinator.report_instances(HOST_A, stores)
    coordinator.deactivate_instances(RUN)
    assert coordinator.report_instances(HOST_A, stores) == stores[:1]
    assert not coordinator.verify_if_instance_active(stores[0], HOST_A.executor_id)
    assert coordinator.verify_if_instance_active(stores[1], HOST_A.executor_id)


def test_a_report_names_what_is_active_elsewhere(coordinator):
    coordinator.report_instances(HOST_A, (provider(0), provider(1)))
    coordinator.report_active_instance(provider(1), HOST_B.host, HOST_B.executor_id)
    assert coordinator.report_instances(HOST_A, (provider(0), provider(1))) == (provider(1),)
    assert coordinator.report_instances(HOST_B, (provider(1),)) == ()


def test_reports_do_not_take_stores_from_each_other(coordinator):
    coordinator.report_instances(HOST_A, (provider(),))
    assert coordinator.report_instances(HOST_B, (provider(),)) == (provider(),)
    assert coordinator.verify_if_instance_active(provider(), HOST_A.executor_id)


def test_opening_a_store_moves_it(coordinator):
    coordinator.open_store(provider(), 0, attempt(1), HOST_A)
    coordinator.open_store(provider(), 1, attempt(2), HOST_B)
    assert coordinator.get_location(provider()) == "executor_hostX_exec2"
    assert coordinator.report_instances(HOST_A, (provider(),)) == (provider(),)


def test_another_process_of_the_same_executor_is_elsewhere(coordinator):
    coordinator.open_store(provider(), 0, attempt(1), HOST_A)
    assert coordinator.report_instances(replace(HOST_A, process="101"), (provider(),)) == (provider(),)


@pytest.mark.parametrize("tidied", [False, True])
def test_a_host_that_stops_reporting_is_gone(coordinator, clock, tidied):
    coordinator.report_instances(HOST_A, (provider(0),))
    clock.now += LEASE - 1
    coordinator.report_instances(HOST_B, (provider(1),))
    clock.now += 1
    if tidied:
        coordinator.drop_expired()
    assert coordinator.get_location(provider(0)) is None
    assert not coordinator.verify_if_instance_active(provider(0), HOST_A.executor_id)
    assert coordinator.get_location(provider(1)) == "executor_hostX_exec2"
    assert coordinator.report_instances(HOST_B, (provider(0),)) == (), "nobody has it any more"


def test_reporting_keeps_the_lease(coordinator, clock):
    coordinator.report_active_instance(provider(1), HOST_A.host, HOST_A.executor_id)
    for _ in range(10):
        coordinator.report_instances(HOST_A, (provider(0),))
        clock.now += LEASE - 1
        coordinator.drop_expired()
    assert coordinator.get_location(provider(0)) == "executor_hostX_exec1"
    assert coordinator.get_location(provider(1)) == "executor_hostX_exec1", "reported for the executor as a whole"


def test_an_operator_sees_who_is_gone(coordinator, clock, caplog):
    coordinator.report_instances(HOST_A, (provider(0), provider(1)))
    clock.now += LEASE
    with caplog.at_level(logging.WARNING):
        coordinator.drop_expired()
        coordinator.drop_expired()
    assert [record.getMessage() for record in caplog.records] == [
        "Executor exec1 on hostX (process 100) stopped reporting: dropped the locations of 2 state stores"
    ]


def test_a_lost_executor_is_dropped_at_once(coordinator):
    coordinator.report_instances(HOST_A, (provider(0),))
    coordinator.report_instances(HOST_B, (provider(1),))
    coordinator.executor_lost("exec1")
    assert coordinator.get_location(provider(0)) is None
    assert coordinator.get_location(provider(1)) == "executor_hostX_exec2"
