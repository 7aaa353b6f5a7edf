"""The batches that crash tests run: what each makes is a function of its number alone."""

from __future__ import annotations

from holdfast.conformance.sample_rows import key, value


def changes(version: int) -> tuple[dict[bytes, bytes], list[bytes]]:
    """What the batch that makes ``version`` puts and removes: a function of the number alone."""
    puts = {key(f"k{(version * 7 + i) % 97}", i): value(version, "x" * (version * i % 50)) for i in range(20)}
    puts[key("version")] = value(version)
    removes = [key(f"k{(version * 11 + i) % 97}", i) for i in range(5)]
    return puts, removes


def expected_state(version: int) -> dict[bytes, bytes]:
    """What ``version`` must contain."""
    state: dict[bytes, bytes] = {}
    for number in range(1, version + 1):
        puts, removes = changes(number)
        state.update(puts)
        for removed in removes:
            state.pop(removed, None)
    return state
