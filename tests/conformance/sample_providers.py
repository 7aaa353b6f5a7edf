"""One right provider, and many that are each wrong in one way. The kit must tell them apart."""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast import Capability, Published, Settings, StateView, VersionedProvider, fault_point, setting
from holdfast.contract.buffered import BufferedReadStore, BufferedStateStore
from holdfast.contract.lifecycle import NEXT, Lifecycle, State
from holdfast.errors import Fenced, InvalidRequest, MissingVersion, Unavailable


class View(StateView):
    def __init__(self, pairs):
        self.pairs = pairs

    def get(self, key):
        return self.pairs.get(key)

    def entries(self):
        return iter(list(self.pairs.items()))

    def num_keys(self):
        return len(self.pairs)


class Right(VersionedProvider):
    """Every version is a whole file, put in place by a rename."""

    capabilities: ClassVar = frozenset(
        {
            Capability.EXTERNAL,
            Capability.TIME_TRAVEL,
            Capability.RANGE_SCAN,
            Capability.PREFIX_SCAN,
            Capability.LATE_START,
        }
    )
    serial = 0

    def open(self):
        self.folder = Path(self.location)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, version):
        return self.folder / f"{version}.json"

    def load(self, version):
        lines = self.path(version).read_text().splitlines()
        return {bytes.fromhex(k): bytes.fromhex(v) for k, v in map(json.loads, lines)}

    def open_view(self, version):
        if version == 0:
            return View({})
        try:
            return View(self.load(version))
        except FileNotFoundError:
            raise MissingVersion(f"no {self.path(version)}") from None

    def merged(self, view, changes):
        pairs = {**dict(view.entries()), **changes}
        return {k: v for k, v in pairs.items() if v is not None}

    def write(self, path, pairs):
        path.write_text("".join(json.dumps([k.hex(), v.hex()]) + "\n" for k, v in pairs.items()))

    def publish(self, base, view, changes, ask):
        pairs = self.merged(view, changes)
        Right.serial += 1
        temporary = self.folder / f"{os.getpid()}-{Right.serial}.tmp"
        self.write(temporary, pairs)
        try:
            ask()
        except BaseException:
            temporary.unlink()
            raise
        self.discard_above(base + 1)
        os.replace(temporary, self.path(base + 1))
        return len(pairs)

    def start_at(self, version):
        if not list(self.folder.glob("*.json")):
            self.write(self.path(version), {})
        elif not self.path(version).exists() or self.load(version):
            raise InvalidRequest("there is state already")

    def discard_above(self, version):
        for path in self.folder.glob("*.json"):
            if int(path.stem) > version:
                path.unlink(missing_ok=True)

    def do_maintenance(self):
        versions = sorted(int(path.stem) for path in self.folder.glob("*.json"))
        for version in versions[: -self.conf.min_versions_to_retain]:
            self.path(version).unlink(missing_ok=True)


class ForgetsCommit(Right):
    def publish(self, base, view, changes, ask):
        ask()
        return 0


class ForgetsAPut(Right):
    def merged(self, view, changes):
        pairs = super().merged(view, changes)
        pairs.pop(min(changes, default=b""), None)
        return pairs


class LosesRemove(Right):
    def merged(self, view, changes):
        return dict(view.entries()) | {k: v for k, v in changes.items() if v is not None}


class CustomStore(Right):
    store: ClassVar = BufferedStateStore

    def get_store(self, version, identity=None):
        return self.store(self, version, self._view(version, identity))


class VersionZeroHasContent(Right):
    def open_view(self, version):
        return super().open_view(version) if version else View({b"k" * 16: b"v" * 16})


class KeepsFirstOfTwo(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def put_many(self, keys, values):
            super().put_many(keys[::-1], values[::-1])


class KeepsTheFirstOfAnArray(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def remove_array(self, keys):
            super().remove_array(keys[1:])


class PutsUntilOneEnds(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def put_many(self, keys, values):
            super().put_many(keys[: len(values)], values[: len(keys)])


class CutsLongKeys(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def put_many(self, keys, values):
            super().put_many([key[:511] for key in keys], values)


class AliasesCallerBuffer(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def put(self, key, value):
            self._lifecycle.check("put")
            self._changes[bytes(key)] = value


class AcceptsNull(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def put(self, key, value):
            self._lifecycle.check("put")
            self._changes[key] = value


class IteratesLive(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def iterator(self):
            self._lifecycle.check("iterator")
            for key, value in self._view.entries():
                if key not in self._changes:
                    yield key, value
            yield from ((k, v) for k, v in list(self._changes.items()) if v is not None)


class IteratorUndoesRemoves(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def iterator(self):
            before = dict(self._changes)
            yield from super().iterator()
            self._changes = before


class IteratorStopsWithItsStore(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def iterator(self):
            for pair in super().iterator():
                if self._lifecycle.state is not State.UPDATING:
                    return
                yield pair


class UsableAfterCommit(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def __init__(self, *args):
            super().__init__(*args)

            class Lenient(Lifecycle):
                def check(self, action):
                    return NEXT.get((self.state, action), self.state)

            self._lifecycle = Lenient()


class StaysOpenAfterItsBlock(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def __exit__(self, *_):
            pass


class ReaderStaysOpen(Right):
    class Reader(BufferedReadStore):
        def abort(self):
            pass

    def get_read_store(self, version):
        return self.Reader(self, version, self._view(version))


class ReaderFollowsTheNewest(Right):
    def get_read_store(self, version):
        store = super().get_read_store(version)
        provider = self

        class Live(View):
            def entries(self):
                newest = max((int(path.stem) for path in provider.folder.glob("*.json")), default=0)
                return iter(provider.load(newest).items()) if version else iter(())

        store._view = Live(store._view.pairs)
        return store


class AbortAfterCommitTakesBack(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def abort(self):
            super().abort()
            if self.has_committed:
                self._provider.path(self.version + 1).unlink()


class IgnoresGuard(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def commit(self):
            self._lifecycle.check("commit")
            self._num_keys_at_end = self._provider.publish(self.version, self._view, self._changes, lambda: None)
            self._lifecycle.move("commit")
            return self.version + 1


class AsksWhenOpened(IgnoresGuard):
    def get_store(self, version):
        store = super().get_store(version)
        self.guard.before_publish(store)
        return store


class GivesGuardAnotherStore(Right):
    def get_store(self, version):
        inner = super().get_store(version)

        class Wrapper(type(inner)):
            def __init__(self):
                super().__init__(inner._provider, inner._version, inner._view)

            def commit(self):
                inner._changes.update(self._changes)
                self._num_keys_at_end = len(inner._changes)
                version = inner.commit()
                self._lifecycle.move("commit")
                return version

        return Wrapper()


class PublishesBeforeAsking(Right):
    def publish(self, base, view, changes, ask):
        count = super().publish(base, view, changes, lambda: None)
        ask()
        return count


class SwallowsFenced(Right):
    def publish(self, base, view, changes, ask):
        def ask_politely():
            with suppress(Fenced):
                ask()

        return super().publish(base, view, changes, ask_politely)


class TakesSilenceForConsent(Right):
    def publish(self, base, view, changes, ask):
        def ask_loudly():
            with suppress(Unavailable):
                ask()

        return super().publish(base, view, changes, ask_loudly)


class FirstCommitWins(Right):
    def publish(self, base, view, changes, ask):
        if self.path(base + 1).exists():
            ask()
            return len(self.load(base + 1))
        return super().publish(base, view, changes, ask)


class LosesChangesOnFailure(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def commit(self):
            try:
                return super().commit()
            except Exception:
                self._changes.clear()
                raise


class DropsUnchangedPut(CustomStore):
    """Skips a put of the value that the opened version has, though the batch changed it before."""

    class store(BufferedStateStore):  # noqa: N801
        def put(self, key, value):
            if self._view.get(bytes(key)) != value:
                super().put(key, value)

        def put_many(self, keys, values):
            for key, value in zip(keys, values, strict=True):
                self.put(key, value)


class ReadsGapAsEmpty(Right):
    def open_view(self, version):
        try:
            return super().open_view(version)
        except MissingVersion:
            return View({})


class ShowsNewestVersion(Right):
    def open_view(self, version):
        view = super().open_view(version)
        newest = max((int(path.stem) for path in self.folder.glob("*.json")), default=0)
        return super().open_view(newest) if version else view


class ShowsUncommitted(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def put(self, key, value):
            super().put(key, value)
            if self.version:
                pairs = self._provider.load(self.version)
                self._provider.write(self._provider.path(self.version), {**pairs, bytes(key): bytes(value)})


class SharesStoresOfOneVersion(Right):
    """Two attempts at one version write into one buffer."""

    def open(self):
        super().open()
        self.buffers = {}

    def get_store(self, version):
        store = super().get_store(version)
        store._changes = self.buffers.setdefault(version, store._changes)
        return store


class AbortKeepsChanges(SharesStoresOfOneVersion):
    def get_store(self, version):
        store = super().get_store(version)
        store._lifecycle.check("put")
        return store


class MergesWithWhatItReplaces(Right):
    def merged(self, view, changes):
        try:
            return super().merged(View(dict(view.entries()) | self.load(self.replacing)), changes)
        except FileNotFoundError:
            return super().merged(view, changes)

    def publish(self, base, view, changes, ask):
        self.replacing = base + 1
        return super().publish(base, view, changes, ask)


class BuildsOnWhateverIsThere(Right):
    """Applies changes to the base as it is at the commit, not as the store showed it."""

    def publish(self, base, view, changes, ask):
        return super().publish(base, self.open_view(base), changes, ask)


class KeepsAbandonedFuture(Right):
    def discard_above(self, version):
        pass


class SkipsEmptyCommit(Right):
    def publish(self, base, view, changes, ask):
        if not changes:
            ask()
            return view.num_keys()
        return super().publish(base, view, changes, ask)


class ForgetsWhenClosed(Right):
    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class TrustsItsMemory(Right):
    """Never looks again at a version that it has seen."""

    def open(self):
        super().open()
        self.seen = {}

    def open_view(self, version):
        if version not in self.seen:
            self.seen[version] = super().open_view(version)
        return self.seen[version]

    def publish(self, base, view, changes, ask):
        count = super().publish(base, view, changes, ask)
        self.seen[base + 1] = View(self.merged(view, changes))
        return count


class Told(Right):
    """Tells versions of one number apart, by their content."""

    def open_view(self, version):
        view = super().open_view(version)
        view.identity = self.identity(view.pairs)
        return view

    def identity(self, pairs):
        return str(zlib.crc32(repr(sorted(pairs.items())).encode()))

    def publish(self, base, view, changes, ask):
        return Published(super().publish(base, view, changes, ask), self.identity(self.merged(view, changes)))


class KeepsTheOldIdentity(Told):
    def publish(self, base, view, changes, ask):
        return Published(super().publish(base, view, changes, ask).num_keys, view.identity)


class OpensAnotherThanAskedFor(Told):
    def _view(self, version, identity=None):
        return super()._view(version)


class ForgetsOldVersions(Right):
    def publish(self, base, view, changes, ask):
        self.path(base - 3).unlink(missing_ok=True)
        return super().publish(base, view, changes, ask)


class CleansTooMuch(Right):
    def do_maintenance(self):
        versions = sorted(int(path.stem) for path in self.folder.glob("*.json"))
        for version in versions[:-1]:
            self.path(version).unlink(missing_ok=True)


class BeginsAtZero(Right):
    def start_at(self, version):
        super().start_at(0)


class BeginsOverExistingState(Right):
    def start_at(self, version):
        self.write(self.path(version), {})


class MixesStores(Right):
    @property
    def location(self):
        return f"{self.store_id.checkpoint_root}/{self.store_id.operator_id}/{self.store_id.partition_id}"


class CountsRemoves(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def _num_keys(self):
            return self._view.num_keys() + len(self._changes)


class RangeWithoutItsEnd(Right):
    class Reader(BufferedReadStore):
        def get_range(self, start, end):
            return iter(list(super().get_range(start, end))[:-1])

    def get_read_store(self, version):
        return self.Reader(self, version, self._view(version))


class RangeOutOfOrder(Right):
    class Reader(BufferedReadStore):
        def get_range(self, start, end):
            return reversed(list(super().get_range(start, end)))

    def get_read_store(self, version):
        return self.Reader(self, version, self._view(version))


class RangeWithoutOwnChanges(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def get_range(self, start, end):
            self._lifecycle.check("get_range")
            return self._provider.get_read_store(self.version).get_range(start, end)


class RangeIgnoresBoundsWithoutIndex(Right):
    class Reader(BufferedReadStore):
        def get_range(self, start, end):
            if self._provider.key_index_ordinal is None:
                return self.iterator()
            return super().get_range(start, end)

    def get_read_store(self, version):
        return self.Reader(self, version, self._view(version))


class PrefixOfBytes(CustomStore):
    class store(BufferedStateStore):  # noqa: N801
        def prefix_scan(self, prefix, columns):
            self._lifecycle.check("prefix_scan")
            return (pair for pair in self.iterator() if pair[0].startswith(prefix[:8]))


class ScansWithoutDeclaring(CustomStore):
    capabilities: ClassVar = frozenset({Capability.EXTERNAL, Capability.TIME_TRAVEL})

    class store(BufferedStateStore):  # noqa: N801
        def get_range(self, start, end):
            return self.iterator()


@dataclass(frozen=True, kw_only=True)
class MumbledSettings(Settings):
    prefix: ClassVar[str] = "spark.holdfast.mumbled."
    depth: int = setting(1, "depth")


class MumblesItsSettings(Right):
    settings: ClassVar = MumbledSettings


class DeclaresCustomMetricWithoutValue(Right):
    @property
    def supported_custom_metrics(self):
        from holdfast import StateStoreCustomMetric

        return (StateStoreCustomMetric("promised", "never measured"),)


class TearsFile(Right):
    """Writes the version in place, in two parts; its reader takes what it finds."""

    fault_points: ClassVar = (*Right.fault_points, "tears.between")

    def publish(self, base, view, changes, ask):
        pairs = self.merged(view, changes)
        ask()
        self.discard_above(base + 1)
        half = dict(list(pairs.items())[: len(pairs) // 2])
        self.write(self.path(base + 1), half)
        fault_point("tears.between")
        self.write(self.path(base + 1), pairs)
        return len(pairs)


class _LeavesMark(Right):
    """Cannot be opened after a crash at certain moments, because of what it leaves behind."""

    def open(self):
        super().open()
        if (self.folder / "mark").exists():
            raise RuntimeError("somebody else is at work")

    def needs_mark(self, base):
        raise NotImplementedError

    def publish(self, base, view, changes, ask):
        if not self.needs_mark(base):
            return super().publish(base, view, changes, ask)
        mark = self.folder / "mark"
        mark.touch()
        count = super().publish(base, view, changes, ask)
        mark.unlink()
        return count


class DiesOfItsFirstCrash(_LeavesMark):
    def needs_mark(self, base):
        return base == 0


class DiesOfACrashWhileReplacing(_LeavesMark):
    def needs_mark(self, base):
        return self.path(base + 1).exists()


class AcknowledgesTooEarly(Right):
    """Holds a commit in memory until the next one, or until it is closed."""

    waiting = None

    def publish(self, base, view, changes, ask):
        ask()
        self.flush()
        self.waiting = (base + 1, self.merged(view, changes))
        return len(self.waiting[1])

    def open_view(self, version):
        if self.waiting and self.waiting[0] == version:
            return View(self.waiting[1])
        return super().open_view(version)

    def flush(self):
        if self.waiting:
            version, pairs = self.waiting
            self.discard_above(version)
            self.write(self.folder / "waiting.tmp", pairs)
            os.replace(self.folder / "waiting.tmp", self.path(version))

    def close(self):
        self.flush()


class DeclaresFaultPointItNeverPasses(Right):
    fault_points: ClassVar = (*Right.fault_points, "nowhere")


class MixesRacingAttempts(Right):
    """Writes key after key into the file of the new version."""

    def publish(self, base, view, changes, ask):
        ask()
        self.discard_above(base + 1)
        pairs = self.merged(view, changes)
        target = self.path(base + 1)
        target.touch()
        items = list(pairs.items())
        for start in range(0, len(items), 50):
            current = self.load(base + 1)
            self.write(target, {**current, **dict(items[start : start + 50])})
            time.sleep(0.002)
        return len(pairs)
