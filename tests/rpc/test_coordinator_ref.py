"""The ref: one method per message, one coordinator per owner, one connection per process and address."""

import logging
import threading
import uuid

import pytest
from sample_messages import HELLO, SOFTWARE, TOKEN

from holdfast.errors import Fenced, Unavailable
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.rpc import messages
from holdfast.rpc.address import Address
from holdfast.rpc.coordinator_ref import StateStoreCoordinatorRef
from holdfast.rpc.messages import (
    Attempt,
    DeactivateInstances,
    ExecutorLost,
    GetLocation,
    Grant,
    HostId,
    MayCommit,
    OpenStore,
    Release,
    ReportActiveInstance,
    ReportCommit,
    ReportInstances,
    ReportSnapshotUploaded,
    StartCommitTracking,
    StartRun,
    StopCoordinator,
    ValidateCommits,
    VerifyIfInstanceActive,
)
from holdfast.rpc.server import RpcServer

RUN = uuid.UUID(int=4)
PROVIDER_ID = StateStoreProviderId(StateStoreId("/checkpoint/state", 1000, 3), RUN)
HOST = HostId("7", "host-b", "p1")
ATTEMPT = Attempt(2, 0, 31)
GRANT = Grant("c1", 5, 60.0, "abc")

REGISTERED = "Registered StateStoreCoordinator endpoint"
RETRIEVED = "Retrieved existing StateStoreCoordinator endpoint"

# What to call, the message it must send, and the answer.
CALLS = [
    (lambda ref: ref.get_location(PROVIDER_ID), GetLocation(PROVIDER_ID), "executor_host-b_7"),
    (lambda ref: ref.get_location(PROVIDER_ID), GetLocation(PROVIDER_ID), None),
    (lambda ref: ref.verify_if_instance_active(PROVIDER_ID, "7"), VerifyIfInstanceActive(PROVIDER_ID, "7"), True),
    (lambda ref: ref.deactivate_instances(RUN), DeactivateInstances(RUN), False),
    (lambda ref: ref.report_instances(HOST, (PROVIDER_ID,)), ReportInstances(HOST, (PROVIDER_ID,)), (PROVIDER_ID,)),
    (lambda ref: ref.executor_lost("7"), ExecutorLost("7"), None),
    (lambda ref: ref.start_run("/checkpoint/state", RUN), StartRun("/checkpoint/state", RUN), None),
    (lambda ref: ref.open_store(PROVIDER_ID, 4, ATTEMPT, HOST), OpenStore(PROVIDER_ID, 4, ATTEMPT, HOST), GRANT),
    (lambda ref: ref.may_commit("c1", 5), MayCommit("c1", 5), None),
    (lambda ref: ref.report_commit("c1", 5, "abc", {"n": 3}), ReportCommit("c1", 5, "abc", {"n": 3}), None),
    (lambda ref: ref.release("c1", 5), Release("c1", 5), None),
    (
        lambda ref: ref.start_commit_tracking(RUN, 4, {1000: {"default": 5}}),
        StartCommitTracking(RUN, 4, {1000: {"default": 5}}),
        None,
    ),
    (lambda ref: ref.validate_commits(RUN, 4), ValidateCommits(RUN, 4), None),
]
ONE_WAY = [
    (
        lambda ref: ref.report_active_instance(PROVIDER_ID, "host-b", "7"),
        ReportActiveInstance(PROVIDER_ID, "host-b", "7"),
    ),
    (lambda ref: ref.report_snapshot_uploaded(PROVIDER_ID, 4), ReportSnapshotUploaded(PROVIDER_ID, 4)),
]


class Coordinator:
    """Remembers what it was told, and answers as told."""

    def __init__(self):
        self.received = []
        self.answer = None
        kinds = [kind for kind in vars(messages).values() if isinstance(kind, type)]
        handlers = {
            kind: self.handle
            for kind in kinds
            if issubclass(kind, messages.Message) and kind not in {messages.Message, messages.Hello}
        }
        self.server = RpcServer("grpc://127.0.0.1:0", TOKEN, handlers, software=SOFTWARE, name="the driver")

    def start(self):
        self.server.start()
        return Address(f"grpc://127.0.0.1:{self.server.port}", TOKEN)

    def handle(self, message):
        self.received.append(message)
        if isinstance(message, StopCoordinator):
            self.server.stop(wait=False)
            return True
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def coordinator():
    coordinator = Coordinator()
    yield coordinator
    coordinator.server.stop()


@pytest.fixture
def ref(coordinator):
    ref = StateStoreCoordinatorRef.for_executor(coordinator.start(), HELLO)
    yield ref
    ref.close()


@pytest.mark.parametrize(("call", "message", "answer"), CALLS, ids=lambda value: type(value).__name__)
def test_a_method_sends_its_message_and_returns_the_answer(coordinator, ref, call, message, answer):
    coordinator.answer = answer
    assert call(ref) == answer
    assert coordinator.received == [message]


def test_refusals_of_the_coordinator_are_raised(coordinator, ref):
    coordinator.answer = Fenced("attempt 2 has it")
    with pytest.raises(Fenced, match="^attempt 2 has it$"):
        ref.may_commit("c1", 5)


def test_reports_are_one_way(coordinator, ref):
    coordinator.answer = Fenced("nobody hears this")
    for call, _ in ONE_WAY:
        assert call(ref) is None
    ref.close()
    assert coordinator.received == [message for _, message in ONE_WAY]


def test_every_message_has_a_method():
    sent = {type(message) for _, message, _ in CALLS} | {type(message) for _, message in ONE_WAY} | {StopCoordinator}
    kinds = {kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, messages.Message)}
    assert kinds - {messages.Message, messages.Hello} == sent


def test_one_connection_per_address(coordinator, caplog):
    caplog.set_level(logging.DEBUG)
    address = coordinator.start()
    first = StateStoreCoordinatorRef.for_executor(address, HELLO)
    assert StateStoreCoordinatorRef.for_executor(address, HELLO) is first
    assert caplog.messages.count(RETRIEVED) == 2
    first.close()
    second = StateStoreCoordinatorRef.for_executor(address, HELLO)
    assert second is not first
    assert second.get_location(PROVIDER_ID) is None
    second.close()


def test_the_driver_starts_one_coordinator_however_many_ask(coordinator, caplog):
    caplog.set_level(logging.DEBUG)
    started, refs = [], []

    def start():
        started.append(1)
        return coordinator.start()

    threads = [
        threading.Thread(target=lambda: refs.append(StateStoreCoordinatorRef.for_driver("app-1", start, HELLO)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(started) == 1
    assert len(refs) == 8
    assert len(set(map(id, refs))) == 1
    assert caplog.messages.count(REGISTERED) == 1
    assert caplog.messages.count(RETRIEVED) == 7
    assert refs[0].stop() is True


def test_every_owner_has_its_own_and_a_stopped_one_is_replaced(coordinator):
    other = Coordinator()
    first = StateStoreCoordinatorRef.for_driver("app-2", coordinator.start, HELLO)
    second = StateStoreCoordinatorRef.for_driver("app-3", other.start, HELLO)
    assert first.address != second.address
    assert first.stop() is True
    coordinator.server.wait()
    replacement = Coordinator()
    third = StateStoreCoordinatorRef.for_driver("app-2", replacement.start, HELLO)
    assert third.get_location(PROVIDER_ID) is None
    assert replacement.received == [GetLocation(PROVIDER_ID)]
    for ref in (second, third):
        assert ref.stop() is True


def test_a_coordinator_that_could_not_start_is_not_remembered(coordinator):
    def fail():
        raise Unavailable("no port")

    with pytest.raises(Unavailable, match="no port"):
        StateStoreCoordinatorRef.for_driver("app-4", fail, HELLO)
    assert StateStoreCoordinatorRef.for_driver("app-4", coordinator.start, HELLO).stop() is True
