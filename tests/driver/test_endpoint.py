"""The coordinator over a real socket."""

import contextlib
import logging
import multiprocessing
import threading
import time
from dataclasses import is_dataclass, replace

import pytest
from sample_ids import HOST_A, HOST_B, NEXT_RUN, ROOT, RUN, attempt, provider

from holdfast.driver.coordinator import StateStoreCoordinator
from holdfast.driver.endpoint import CoordinatorEndpoint
from holdfast.errors import Fenced, IncompleteBatch, InvalidRequest, Unavailable, VersionSkew
from holdfast.rpc import messages
from holdfast.rpc.client import RpcClient
from holdfast.rpc.coordinator_ref import StateStoreCoordinatorRef

SOFTWARE = {"holdfast": "1.0"}
HELLO = messages.Hello(messages.PROTOCOL, SOFTWARE, "executor 1 on hostX")


def make_endpoint(coordinator=None, tidy_interval=60.0, port=0):
    coordinator = coordinator or StateStoreCoordinator(time.monotonic, report_interval=60.0)
    return CoordinatorEndpoint(
        coordinator, host="127.0.0.1", bind="127.0.0.1", port=port, software=SOFTWARE, tidy_interval=tidy_interval
    )


@pytest.fixture
def endpoint():
    endpoint = make_endpoint()
    endpoint.start()
    yield endpoint
    endpoint.stop()


@pytest.fixture
def ref(endpoint):
    with contextlib.closing(StateStoreCoordinatorRef(RpcClient(endpoint.address, hello=HELLO))) as ref:
        yield ref


def await_that(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def test_every_message_has_a_handler(endpoint):
    everything = {
        thing for thing in vars(messages).values() if is_dataclass(thing) and issubclass(thing, messages.Message)
    }
    assert everything - {messages.Hello} == set(endpoint._handlers())


def test_where_stores_are(ref):
    ref.report_active_instance(provider(), "hostX", "exec1")
    await_that(lambda: ref.get_location(provider()) == "executor_hostX_exec1")
    assert ref.verify_if_instance_active(provider(), "exec1")
    assert ref.report_instances(HOST_B, (provider(), provider(1))) == (provider(),)
    ref.executor_lost("exec1")
    assert ref.get_location(provider()) is None
    assert ref.deactivate_instances(RUN)
    assert ref.get_location(provider(1)) is None


def test_several_refs_reach_one_coordinator(endpoint, ref):
    with contextlib.closing(StateStoreCoordinatorRef(RpcClient(endpoint.address, hello=HELLO))) as other:
        ref.report_instances(HOST_A, (provider(),))
        assert other.get_location(provider()) == "executor_hostX_exec1"


def test_a_whole_batch(ref):
    ref.start_run(ROOT, RUN)
    ref.start_commit_tracking(RUN, 0, {1000: {"default": 2}})
    grants = [ref.open_store(provider(n), 0, attempt(n), HOST_A) for n in range(2)]
    ref.may_commit(grants[0].incarnation, grants[0].sequence)
    ref.report_commit(grants[0].incarnation, grants[0].sequence, "a", {"numRowsTotal": 3})
    ref.release(grants[1].incarnation, grants[1].sequence)
    with pytest.raises(Fenced, match="given back"):
        ref.may_commit(grants[1].incarnation, grants[1].sequence)
    with pytest.raises(IncompleteBatch, match="operator 1000, store default, partition 1"):
        ref.validate_commits(RUN, 0)
    retry = ref.open_store(provider(1), 0, attempt(2), HOST_A)
    ref.may_commit(retry.incarnation, retry.sequence)
    ref.report_commit(retry.incarnation, retry.sequence, None, {})
    ref.validate_commits(RUN, 0)
    assert ref.open_store(provider(0), 1, attempt(3), HOST_A).identity == "a"
    ref.start_run(ROOT, NEXT_RUN)
    with pytest.raises(Fenced, match="is over"):
        ref.open_store(provider(0), 1, attempt(4), HOST_A)


def test_snapshots_are_reported():
    coordinator = StateStoreCoordinator(time.monotonic, report_interval=60.0)
    endpoint = make_endpoint(coordinator)
    with contextlib.closing(StateStoreCoordinatorRef(RpcClient(endpoint.start(), hello=HELLO))) as ref:
        ref.report_instances(HOST_A, (provider(0), provider(1)))
        ref.report_snapshot_uploaded(provider(0), 100)
        await_that(lambda: coordinator.lagging_stores(RUN, 100) == [provider(1)])
    endpoint.stop()


def test_hosts_that_stop_reporting_are_dropped(caplog):
    coordinator = StateStoreCoordinator(time.monotonic, report_interval=0.02)
    endpoint = make_endpoint(coordinator, tidy_interval=0.01)
    with caplog.at_level(logging.WARNING, logger="holdfast.driver.coordinator"):
        endpoint.start()
        coordinator.report_instances(HOST_A, (provider(),))
        await_that(lambda: "dropped the locations of 1 state stores" in caplog.text)
    endpoint.stop()
    assert not any(thread.name == "holdfast-coordinator-tidy" for thread in threading.enumerate())


def test_tokens_are_needed_and_differ(endpoint, caplog):
    other = make_endpoint()
    other.start()
    stolen = replace(endpoint.address, token=other.address.token)
    other.stop()
    assert endpoint.address.token not in repr(endpoint.address)
    with (
        contextlib.closing(RpcClient(stolen, hello=HELLO, retries=0)) as client,
        pytest.raises(InvalidRequest, match="token"),
    ):
        client.ask(messages.GetLocation(provider()))
    assert "refused" in caplog.text
    assert stolen.token not in caplog.text


def test_other_software_is_refused(endpoint):
    hello = replace(HELLO, software={"holdfast": "0.9"})
    with contextlib.closing(RpcClient(endpoint.address, hello=hello)) as client, pytest.raises(VersionSkew):
        client.ask(messages.GetLocation(provider()))


def test_stopping_by_message_and_twice(caplog):
    endpoint = make_endpoint()
    ref = StateStoreCoordinatorRef(RpcClient(endpoint.start(), hello=HELLO))
    with caplog.at_level(logging.INFO):
        assert ref.stop()
        endpoint.stop()
        endpoint.stop()
    assert caplog.text.count("StateStoreCoordinator stopped") == 1
    with contextlib.closing(RpcClient(endpoint.address, hello=HELLO, retries=0)) as client, pytest.raises(Unavailable):
        client.ask(messages.GetLocation(provider()), timeout=5)


def test_a_restarted_coordinator_knows_no_grant_and_learns_locations(endpoint, ref):
    """At the same port, so that only the token and the grants tell the two apart."""
    grant = ref.open_store(provider(), 0, attempt(1), HOST_A)
    port = int(endpoint.address.location.rsplit(":", 1)[1])
    endpoint.stop()
    second = make_endpoint(port=port)
    second.start()
    try:
        with pytest.raises(InvalidRequest, match="token"):
            ref.may_commit(grant.incarnation, grant.sequence)
        with contextlib.closing(StateStoreCoordinatorRef(RpcClient(second.address, hello=HELLO))) as renewed:
            with pytest.raises(Fenced, match="started anew"):
                renewed.may_commit(grant.incarnation, grant.sequence)
            assert renewed.report_instances(HOST_A, (provider(),)) == ()
            assert renewed.get_location(provider()) == "executor_hostX_exec1"
            again = renewed.open_store(provider(), 0, attempt(2), HOST_A)
            renewed.may_commit(again.incarnation, again.sequence)
    finally:
        second.stop()


def compete(address, number, results):
    with contextlib.closing(StateStoreCoordinatorRef(RpcClient(address, hello=HELLO))) as ref:
        host = replace(HOST_A, process=str(number))
        grant = ref.open_store(provider(), 0, attempt(number), host)
        results.put("open")
        results.join_all.wait()
        try:
            ref.may_commit(grant.incarnation, grant.sequence)
        except Fenced:
            results.put("fenced")
        else:
            results.put("permitted")


class Results:
    """A queue, and a barrier at which all who compete meet."""

    def __init__(self, context, parties):
        self._queue = context.Queue()
        self.join_all = context.Barrier(parties)

    def put(self, result):
        self._queue.put(result)

    def get(self):
        return self._queue.get(timeout=60)


def test_of_many_processes_one_gets_permission(endpoint):
    context = multiprocessing.get_context("spawn")
    results = Results(context, 4)
    processes = [context.Process(target=compete, args=(endpoint.address, n, results)) for n in range(4)]
    for process in processes:
        process.start()
    answers = sorted(results.get() for _ in range(8))
    for process in processes:
        process.join(60)
    assert answers == ["fenced"] * 3 + ["open"] * 4 + ["permitted"]
