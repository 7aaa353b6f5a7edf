"""What attempts are answered; that the answers add up to something safe is proven in test_grant_model."""

import threading

import pytest
from sample_ids import HOST_A, HOST_B, NEXT_RUN, ROOT, RUN, attempt, provider

from holdfast.driver.coordinator import StateStoreCoordinator
from holdfast.errors import Fenced

LIFETIME = 15.0


@pytest.fixture
def opens(coordinator):
    """Opens a version and returns what identifies the grant."""

    def make(number, version=0, host=HOST_A, store=None, stage=1):
        grant = coordinator.open_store(store or provider(), version, attempt(number, stage), host)
        return grant.incarnation, grant.sequence

    return make


def test_a_grant_holds_for_a_lease(coordinator):
    grant = coordinator.open_store(provider(), 0, attempt(1), HOST_A)
    assert grant.expires_in == LIFETIME
    assert grant.identity is None


def test_who_may_commit_may_ask_again(coordinator, opens):
    grant = opens(1)
    for _ in range(3):
        coordinator.may_commit(*grant)
        coordinator.report_commit(*grant, "a", {})


def test_permission_voids_the_grants_of_others(coordinator, opens):
    first, second = opens(1), opens(2, host=HOST_B)
    coordinator.may_commit(*first)
    with pytest.raises(Fenced, match="attempt 2 at version 0 of /data/q/state/1000/0: attempt 1 got permission"):
        coordinator.may_commit(*second)
    with pytest.raises(Fenced, match="while this one was running"):
        opens(2, host=HOST_B)


def test_stores_are_apart(coordinator, opens):
    first, second = opens(1), opens(2, store=provider(1))
    coordinator.may_commit(*first)
    coordinator.may_commit(*second)
    coordinator.may_commit(*opens(3, store=provider(name="left")))


def test_a_retry_may_overwrite_and_then_the_first_may_not(coordinator, opens):
    first = opens(1)
    coordinator.may_commit(*first)
    retry = opens(2)
    coordinator.may_commit(*first)
    coordinator.may_commit(*retry)
    with pytest.raises(Fenced, match="attempt 2 got permission"):
        coordinator.may_commit(*first)
    with pytest.raises(Fenced, match="attempt 2 got permission"):
        coordinator.report_commit(*first, "a", {})


def test_a_zombie_that_opens_late_is_refused(coordinator, opens):
    coordinator.may_commit(*opens(2))
    with pytest.raises(Fenced, match="attempt 2, which was launched after it, got permission"):
        opens(1)


def test_asking_twice_gives_one_grant(coordinator, opens):
    assert opens(1) == opens(1)
    assert opens(1, host=HOST_B) != opens(1)


def test_a_newer_batch_ends_the_older_one(coordinator, opens):
    waiting = opens(1, version=4)
    opens(2, version=5, store=provider(1))
    with pytest.raises(Fenced, match="batch 4 is over, batch 5 has begun"):
        opens(3, version=4)
    with pytest.raises(Fenced, match="batch 5 has begun"):
        coordinator.may_commit(*waiting)


def test_a_new_run_revokes_the_older_one(coordinator, opens):
    coordinator.start_run(ROOT, RUN)
    waiting = opens(1, version=7)
    coordinator.start_run(ROOT, NEXT_RUN)
    with pytest.raises(Fenced, match=f"run {NEXT_RUN} of the query began"):
        coordinator.may_commit(*waiting)
    with pytest.raises(Fenced, match=f"run {RUN} at {ROOT} is over"):
        opens(2, version=7)
    with pytest.raises(Fenced, match=f"run {RUN} at {ROOT} is over"):
        coordinator.start_run(ROOT, RUN)
    coordinator.may_commit(*opens(3, version=6, store=provider(run=NEXT_RUN)))


def test_without_an_announcement_the_first_open_begins_a_run(coordinator, opens):
    waiting = opens(1)
    opens(2, store=provider(1, run=NEXT_RUN))
    with pytest.raises(Fenced, match="began"):
        coordinator.may_commit(*waiting)
    with pytest.raises(Fenced, match="is over"):
        opens(3)


def test_where_runs_are_announced_no_other_opens(coordinator, opens):
    coordinator.start_run(ROOT, NEXT_RUN)
    with pytest.raises(Fenced, match=f"run {RUN} at {ROOT} was not announced"):
        opens(1)
    opens(2, store=provider(root="/other/state"))


def test_announcing_a_run_again_changes_nothing(coordinator, opens):
    coordinator.start_run(ROOT, RUN)
    grant = opens(1)
    coordinator.start_run(ROOT, RUN)
    coordinator.may_commit(*grant)


def test_an_ended_run_has_no_grants(coordinator, opens):
    grant = opens(1)
    coordinator.deactivate_instances(RUN)
    with pytest.raises(Fenced, match="ended"):
        coordinator.may_commit(*grant)


@pytest.mark.parametrize("announced", [False, True])
def test_an_ended_run_gets_no_grants(coordinator, opens, announced):
    if announced:
        coordinator.start_run(ROOT, RUN)
    opens(1)
    coordinator.deactivate_instances(RUN)
    with pytest.raises(Fenced, match=f"run {RUN} at {ROOT} is over$"):
        opens(2)
    coordinator.start_run(ROOT, NEXT_RUN)
    opens(3, store=provider(run=NEXT_RUN))


def test_grants_expire_unless_their_host_reports(coordinator, clock, opens):
    silent, reporting = opens(1), opens(2, store=provider(1), host=HOST_B)
    clock.now += LIFETIME - 1
    coordinator.report_instances(HOST_B, ())
    clock.now += 1
    with pytest.raises(Fenced, match="the grant expired, because its host, executor exec1, stopped reporting"):
        coordinator.may_commit(*silent)
    coordinator.may_commit(*reporting)


@pytest.mark.parametrize("tidied", [False, True])
def test_what_has_expired_does_not_come_back(coordinator, clock, opens, tidied):
    grant = opens(1)
    clock.now += LIFETIME
    if tidied:
        coordinator.drop_expired()
    coordinator.report_instances(HOST_A, (provider(),))
    with pytest.raises(Fenced, match="not known" if tidied else "expired"):
        coordinator.may_commit(*grant)
    assert opens(1) != grant


def test_a_lost_executor_has_no_grants(coordinator, opens):
    lost, other = opens(1), opens(2, store=provider(1), host=HOST_B)
    coordinator.executor_lost("exec1")
    with pytest.raises(Fenced, match="executor exec1 was lost"):
        coordinator.may_commit(*lost)
    coordinator.may_commit(*other)


def test_a_grant_that_was_given_back_is_void(coordinator, opens):
    grant = opens(1)
    coordinator.release(*grant)
    coordinator.release(*grant)
    coordinator.release("of another coordinator", 1)
    with pytest.raises(Fenced, match="given back"):
        coordinator.may_commit(*grant)


def test_a_session_that_ends_late_leaves_its_successor_the_grant(coordinator, opens):
    first, again = opens(1), opens(1)
    assert first == again, "one attempt on one host has one grant"
    coordinator.release(*first)
    coordinator.may_commit(*again)
    coordinator.release(*again)
    with pytest.raises(Fenced, match="given back"):
        coordinator.may_commit(*again)


def test_unknown_grants_are_void(coordinator, opens, clock):
    incarnation, sequence = opens(1)
    later = StateStoreCoordinator(clock, report_interval=5.0)
    assert later.open_store(provider(), 0, attempt(1), HOST_A).sequence == sequence
    for unknown in [(incarnation, sequence + 1), ("other", sequence)]:
        for ask in (coordinator.may_commit, lambda *grant: coordinator.report_commit(*grant, None, {})):
            with pytest.raises(Fenced, match="not known"):
                ask(*unknown)
    with pytest.raises(Fenced, match="not known"):
        later.may_commit(incarnation, sequence)


def test_a_commit_needs_permission(coordinator, opens):
    with pytest.raises(Fenced, match="without permission"):
        coordinator.report_commit(*opens(1), "a", {})


def test_the_identity_of_a_version_is_told_to_who_opens_it(coordinator, opens):
    first = opens(1)
    coordinator.may_commit(*first)
    coordinator.report_commit(*first, "a", {})
    assert coordinator.open_store(provider(), 1, attempt(2), HOST_A).identity == "a"
    assert coordinator.open_store(provider(1), 1, attempt(3), HOST_A).identity is None


def test_an_identity_is_not_told_once_another_attempt_may_replace_the_version(coordinator, opens):
    first = opens(1)
    coordinator.may_commit(*first)
    coordinator.report_commit(*first, "a", {})
    coordinator.may_commit(*opens(2))
    assert coordinator.open_store(provider(), 1, attempt(3), HOST_A).identity is None


def test_a_new_run_is_told_nothing_of_the_old_one(coordinator, opens):
    first = opens(1)
    coordinator.may_commit(*first)
    coordinator.report_commit(*first, "a", {})
    assert coordinator.open_store(provider(run=NEXT_RUN), 1, attempt(2), HOST_A).identity is None


class Spark:
    """Knows which attempts could count."""

    def __init__(self):
        self.could_count = {}

    def __call__(self, asked):
        return self.could_count[asked.task_attempt_id]


@pytest.mark.parametrize(
    ("first_could", "second_could", "stage", "refusal"),
    [
        (True, True, 1, "attempt 1 got permission to commit and is still running"),
        (False, False, 1, "Spark gave this attempt up, or counts attempt 1"),
        (False, True, 1, None),
        (True, True, 2, None),
    ],
    ids=["the first may yet be counted", "the first was counted", "the first failed", "another action"],
)
def test_spark_is_asked_which_copy_counts(clock, first_could, second_could, stage, refusal):
    spark = Spark()
    coordinator = StateStoreCoordinator(clock, report_interval=5.0, could_count=spark)
    first = coordinator.open_store(provider(), 0, attempt(1), HOST_A)
    coordinator.may_commit(first.incarnation, first.sequence)
    spark.could_count = {1: first_could, 2: second_could}
    second = coordinator.open_store(provider(), 0, attempt(2, stage), HOST_B)
    if refusal is None:
        coordinator.may_commit(second.incarnation, second.sequence)
    else:
        with pytest.raises(Fenced, match=refusal):
            coordinator.may_commit(second.incarnation, second.sequence)


def test_of_many_threads_one_gets_permission(coordinator):
    """All attempts have opened, so whoever asks first voids the rest."""
    for version in range(20):
        grants = [coordinator.open_store(provider(), version, attempt(version * 8 + n), HOST_A) for n in range(8)]
        together, permitted = threading.Barrier(len(grants)), []

        def ask(grant, together=together, permitted=permitted):
            together.wait()
            try:
                coordinator.may_commit(grant.incarnation, grant.sequence)
            except Fenced:
                return
            permitted.append(grant)

        threads = [threading.Thread(target=ask, args=(grant,)) for grant in grants]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(permitted) == 1


def test_memory_does_not_grow_with_batches(coordinator, clock):
    grants = coordinator._grants
    for version in range(50):
        grant = coordinator.open_store(provider(), version, attempt(version), HOST_A)
        coordinator.may_commit(grant.incarnation, grant.sequence)
        coordinator.report_commit(grant.incarnation, grant.sequence, "x", {})
        clock.now += 5
        coordinator.drop_expired()
    (known,) = grants._checkpoints.values()
    assert len(grants._held) == 1
    assert len(known.newest.batches) == 2
