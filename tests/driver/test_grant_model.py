"""The rules of grants keep their promises in every small world, and every rule is needed for that."""

import pytest
from grant_model import Promise, Size, search

from holdfast.driver.grants import Grants
from holdfast.errors import Fenced

WORLDS = {
    "retries, copies and zombies over two batches": Size(attempts=3, batches=2),
    "the same, and Spark is asked about copies that open late": Size(attempts=3, batches=2, asks_spark=True),
    "a new run": Size(attempts=3, runs=2),
    "two actions on one batch": Size(attempts=3, actions=2),
    "a batch that ends without the store": Size(attempts=3, batches=2, skipped_batches=1),
    "lost answers, expiry and a restart": Size(attempts=2, lost_answers=2, expiries=1, restarts=1),
    "lost answers and copies that open late": Size(attempts=2, lost_answers=2, asks_spark=True),
}


@pytest.mark.parametrize("size", WORLDS.values(), ids=WORLDS.keys())
def test_no_state_breaks_a_promise(size):
    found = search(size)
    assert found.broken is None, found.story
    assert found.states > 1000, "the world is too small to say anything"


class OlderRunsOpen(Grants):
    def _run_that_opens(self, provider_id):
        return self._checkpoints[provider_id.store_id.checkpoint_root].newest


class OlderRunsKeepGrants(Grants):
    def _revoke_older_run(self, known, newer):
        known.ended.add(known.newest.run_id)


class OlderBatchesOpen(Grants):
    def _refuse_older_batch(self, run, version, what):
        pass


class OlderBatchesKeepGrants(Grants):
    def _revoke_older_batches(self, run, version):
        pass


class PermissionVoidsNothing(Grants):
    def _void_others(self, batch, permitted):
        pass


class BeatenAttemptsOpenAgain(Grants):
    def _refuse_beaten(self, batch, attempt, what):
        pass


class ZombiesOpenLate(Grants):
    def _refuse_launched_earlier(self, batch, attempt, what):
        pass


class RetriesAreZombies(Grants):
    def _refuse_launched_earlier(self, batch, attempt, what):
        if batch.permitted_attempts:
            raise Fenced(what)


class CopiesCommit(Grants):
    def _refuse_copy(self, batch, held):
        pass


class PermissionIsGivenOnce(Grants):
    def may_commit(self, incarnation, sequence, now):
        if self._valid(incarnation, sequence, now).batch.permitted == sequence:
            raise Fenced("asked before")
        super().may_commit(incarnation, sequence, now)


class AnyoneReports(Grants):
    def report_commit(self, incarnation, sequence, identity, now):
        held = self._held[sequence]
        held.batch.identity = identity
        return held


class IdentitiesOutliveTheirVersion(Grants):
    def _forget_identity(self, batch):
        pass


class GrantsNeverExpire(Grants):
    def _is_expired(self, host, now):
        return False


class GrantsOutliveARestart(Grants):
    def _is_ours(self, incarnation):
        return True


# Within their assumption identities are always reported anew before anybody asks for them: this rule is for what is
# left out. So it is looked at where it matters, and nothing else is.
UNFORESEEN = Size(attempts=3, batches=2, late_copies=True, promises=frozenset({Promise.IDENTITY}))

BROKEN_RULES = [
    (OlderRunsOpen, Size(attempts=2, runs=2), Promise.ONLY_THE_NEWEST),
    (OlderRunsKeepGrants, Size(attempts=2, runs=2), Promise.ONLY_THE_NEWEST),
    (OlderBatchesOpen, Size(attempts=3, batches=2), Promise.ONLY_THE_NEWEST),
    (OlderBatchesOpen, Size(attempts=3, batches=2, promises={Promise.COUNTED_STAYS}), Promise.COUNTED_STAYS),
    (OlderBatchesKeepGrants, Size(attempts=2, batches=2, skipped_batches=1), Promise.ONLY_THE_NEWEST),
    (PermissionVoidsNothing, Size(attempts=2), Promise.COUNTED_STAYS),
    (BeatenAttemptsOpenAgain, Size(attempts=2, lost_answers=1), Promise.COUNTED_STAYS),
    (ZombiesOpenLate, Size(attempts=2), Promise.COUNTED_STAYS),
    (RetriesAreZombies, Size(attempts=1), Promise.RETRY),
    (CopiesCommit, Size(attempts=2, asks_spark=True), Promise.COUNTED_STAYS),
    (PermissionIsGivenOnce, Size(attempts=1), Promise.RETRY),
    (AnyoneReports, Size(attempts=3, batches=2), Promise.IDENTITY),
    (IdentitiesOutliveTheirVersion, UNFORESEEN, Promise.IDENTITY),
    (GrantsNeverExpire, Size(attempts=1, expiries=1), Promise.EXPIRY),
    (GrantsOutliveARestart, Size(attempts=2, restarts=1), Promise.COUNTED_STAYS),
]


@pytest.mark.parametrize(("rules", "size", "promise"), BROKEN_RULES, ids=lambda each: getattr(each, "__name__", None))
def test_without_the_rule_a_promise_is_broken(rules, size, promise):
    found = search(size, rules)
    assert found.broken is promise, found


def test_identities_are_right_even_where_more_is_not_promised():
    assert search(UNFORESEEN).broken is None


@pytest.mark.parametrize("left_out", [{"late_copies": True}, {"plain_overwrite": True}])
def test_what_the_model_leaves_out_is_left_out_for_a_reason(left_out):
    found = search(Size(attempts=2, **left_out))
    assert found.broken is Promise.COUNTED_STAYS, found
