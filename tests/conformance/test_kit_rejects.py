"""The kit fails every provider that is wrong, for the reason for which it is wrong."""

import inspect

import pytest

import sample_providers

# Imported here, or every inner run would import it (and NumPy) again.
from holdfast.conformance import ProviderContract

RIGHT = ["Right", "Told"]

# Wrong provider, the test that catches it, and what that test says.
CASES = [
    ("ForgetsCommit", "test_get_put_remove", "MissingVersion"),
    ("ForgetsAPut", "test_get_put_remove", "assert"),
    ("LosesRemove", "test_changes_apply_on_top_of_the_opened_version", "was lost by the commit"),
    ("AliasesCallerBuffer", "test_callers_buffers_may_be_reused", "kept the caller's buffer"),
    ("AcceptsNull", "test_nulls_are_refused", "DID NOT RAISE"),
    ("IteratesLive", "test_iterator_is_of_the_moment_it_was_asked_for", "assert"),
    ("IteratorStopsWithItsStore", "test_iterator_that_outlives_its_store_never_ends_early", "assert"),
    ("UsableAfterCommit", "test_nothing_more_after_commit", "DID NOT RAISE"),
    ("AbortAfterCommitTakesBack", "test_nothing_more_after_commit", "MissingVersion"),
    ("IgnoresGuard", "test_a_fenced_attempt_publishes_nothing", "DID NOT RAISE"),
    ("AsksWhenOpened", "test_asked_once_per_commit_with_the_store_itself", "asked before the commit"),
    ("GivesGuardAnotherStore", "test_asked_once_per_commit_with_the_store_itself", "must be given the store"),
    ("PublishesBeforeAsking", "test_nothing_is_visible_when_the_guard_is_asked", "DID NOT RAISE"),
    ("SwallowsFenced", "test_a_fenced_attempt_publishes_nothing", "visible without calling ask()"),
    ("LosesChangesOnFailure", "test_an_error_in_commit_can_be_retried", "lost its changes"),
    ("DropsUnchangedPut", "test_random_walk", "assert"),
    ("ReadsGapAsEmpty", "test_versions_that_do_not_exist", "DID NOT RAISE"),
    ("ShowsNewestVersion", "test_each_version_keeps_its_content", "assert"),
    ("ShowsUncommitted", "test_nobody_sees_uncommitted_changes", "visible before its commit"),
    ("SharesStoresOfOneVersion", "test_two_stores_of_one_version_are_isolated", "assert"),
    ("AbortKeepsChanges", "test_abort_leaves_nothing", "assert"),
    ("MergesWithWhatItReplaces", "test_the_same_version_again_replaces_it", "still there"),
    ("BuildsOnWhateverIsThere", "test_a_base_made_again_while_a_store_is_open", "another base than it saw"),
    ("KeepsAbandonedFuture", "test_a_future_that_did_not_happen_is_gone", "DID NOT RAISE"),
    ("SkipsEmptyCommit", "test_commit_without_changes_makes_a_version", "MissingVersion"),
    ("ForgetsWhenClosed", "test_a_new_provider_finds_what_was_committed", "MissingVersion"),
    ("CleansTooMuch", "test_maintenance_keeps_what_is_promised", "MissingVersion"),
    ("BeginsAtZero", "test_a_state_that_begins_later", "MissingVersion"),
    ("BeginsOverExistingState", "test_state_does_not_begin_a_second_time", "DID NOT RAISE"),
    ("MixesStores", "test_stores_do_not_mix", "shows another store's state"),
    ("CountsRemoves", "test_num_keys", "assert"),
    ("RangeWithoutItsEnd", "test_range_scan", "is wrong"),
    ("RangeOutOfOrder", "test_range_scan", "not in order"),
    ("PrefixOfBytes", "test_prefix_scan", "assert"),
    ("ScansWithoutDeclaring", "test_range_scan", "DID NOT RAISE"),
    ("DeclaresCustomMetricWithoutValue", "test_custom_metrics_are_the_declared_ones", "differ"),
    ("TearsFile", "test_crash_at_every_fault_point", "not whole"),
    ("DiesOfItsFirstCrash", "test_crash_at_every_fault_point", "somebody else is at work"),
    ("DiesOfACrashWhileReplacing", "test_crash_at_every_fault_point", "somebody else is at work"),
    ("AcknowledgesTooEarly", "test_crash_at_random_moments", "MissingVersion"),
    ("DeclaresFaultPointItNeverPasses", "test_crash_at_every_fault_point", "does not pass it"),
    ("MixesRacingAttempts", "test_two_writers_of_one_version", "mixture of two attempts"),
    ("VersionZeroHasContent", "test_version_zero_is_empty", "assert"),
    ("KeepsFirstOfTwo", "test_bulk_forms_agree_with_single_ones", "the last value stays"),
    ("KeepsTheFirstOfAnArray", "test_array_forms_agree_with_single_ones", "arrays of binary"),
    ("PutsUntilOneEnds", "test_put_many_with_unequal_lengths_is_refused", "DID NOT RAISE"),
    ("CutsLongKeys", "test_rows_of_all_sizes", "assert"),
    ("IteratorUndoesRemoves", "test_updates_while_iterating", "assert"),
    ("StaysOpenAfterItsBlock", "test_leaving_the_block_without_commit_aborts", "DID NOT RAISE"),
    ("ReaderStaysOpen", "test_read_store", "DID NOT RAISE"),
    ("ReaderFollowsTheNewest", "test_readers_keep_their_version", "assert"),
    ("UsableAfterCommit", "test_nothing_more_after_abort", "DID NOT RAISE"),
    ("PublishesBeforeAsking", "test_a_late_zombie_cannot_overwrite", "changed the state"),
    ("FirstCommitWins", "test_an_attempt_that_opens_later_may_overwrite", "assert"),
    ("TakesSilenceForConsent", "test_no_answer_is_no_permission", "visible without calling ask()"),
    ("TrustsItsMemory", "test_a_version_made_again_by_another_provider_is_seen", "which was replaced"),
    ("KeepsTheOldIdentity", "test_everybody_agrees_on_an_identity", "said to be two different ones"),
    ("OpensAnotherThanAskedFor", "test_another_version_of_that_number_is_told_apart", "DID NOT RAISE"),
    ("ForgetsOldVersions", "test_old_versions_stay_readable", "MissingVersion"),
    ("RangeWithoutOwnChanges", "test_range_scan_sees_own_changes", "assert"),
    ("RangeIgnoresBoundsWithoutIndex", "test_range_scan_without_an_index_column", "DID NOT RAISE"),
    ("MumblesItsSettings", "test_declarations_are_complete", "its help is a sentence"),
    ("MixesRacingAttempts", "test_readers_beside_a_writer_and_maintenance", "half written"),
]


def test_every_wrong_provider_has_a_case():
    providers = {
        name
        for name, cls in inspect.getmembers(sample_providers, inspect.isclass)
        if issubclass(cls, sample_providers.Right) and name not in {*RIGHT, "CustomStore", "_LeavesMark"}
    }
    assert providers == {provider for provider, _, _ in CASES}


def test_every_test_of_the_kit_can_fail():
    tests = {name for name in dir(ProviderContract) if name.startswith("test_")}
    assert tests == {test for _, test, _ in CASES}


def run_kit(pytester, provider, *arguments):
    test = f"""
        import pytest
        from holdfast.conformance import Backend, ProviderContract

        class TestIt(ProviderContract):
            @pytest.fixture
            def backend(self, tmp_path):
                return Backend("sample_providers.{provider}", str(tmp_path / "state"))
        """
    # A module name of its own: pytest would take the second "test_x.py" for the first one's cached copy.
    pytester.makepyfile(**{f"test_{provider}": test})
    return pytester.runpytest_inprocess("-q", "--no-header", "-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize("right", RIGHT)
def test_kit_accepts_the_right_ones(right, pytester):
    outcomes = run_kit(pytester, right).parseoutcomes()
    assert set(outcomes) == {"passed"}
    assert outcomes["passed"] > 40


@pytest.mark.parametrize(("wrong", "caught_by", "reason"), CASES)
def test_kit_rejects(wrong, caught_by, reason, pytester):
    result = run_kit(pytester, wrong, "-k", f"{caught_by} and not {caught_by}_")
    outcomes = result.parseoutcomes()
    assert outcomes.get("failed"), f"{caught_by} passes {wrong}"
    assert "errors" not in outcomes, "the provider must fail the test, not break it"
    failures = [line for line in result.outlines if line.startswith("E ")]
    assert any(reason in line for line in failures), "\n".join(failures)
