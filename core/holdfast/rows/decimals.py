"""Decimals as 128-bit two's complement numbers, in pairs of words.

Arrow keeps a decimal as 16 little-endian bytes; Spark, above 18 digits, as Java's ``BigInteger.toByteArray``: as few
big-endian bytes as hold the number and its sign.
"""

from __future__ import annotations

import numpy as np

from holdfast.rows.words import WORD, Bools, Ints, Words

MAX_LONG_DIGITS = 18
"""Up to here a decimal's digits fit a 64-bit slot."""


def minimal_bytes(low: Words, high: Words) -> tuple[Ints, Words, Words]:
    """Return each number's size in bytes and its bytes, in two words as they stand in memory, zero-padded."""
    sign = _sign(high)
    size = np.ones(len(low), np.int64)
    # A number needs more than k bytes exactly if something other than copies of the sign is left above bit 8k-1.
    for k in range(1, 9):
        size += ((low ^ sign) >> np.uint64(8 * k - 1) | (high ^ sign)) != 0
    for k in range(9, 16):
        size += (high ^ sign) >> np.uint64(8 * k - 65) != 0
    shift = (8 * (16 - size)).astype(WORD)
    over = shift >= 64
    inside = np.where(over, 0, shift).astype(WORD)
    # Shifting by 64 is not defined, so the carry between the words is shifted twice.
    carry = (low >> np.uint64(1)) >> (np.uint64(63) - inside)
    first = np.where(over, low << np.where(over, shift - np.uint64(64), 0).astype(WORD), high << inside | carry)
    second = np.where(over, 0, low << inside)
    return size, first.astype(WORD).byteswap(), second.astype(WORD).byteswap()


def from_minimal_bytes(first: Words, second: Words, size: Ints) -> tuple[Words, Words]:
    """Undo `minimal_bytes` for sizes 1 to 16, as (low, high)."""
    high, low = first.byteswap(), second.byteswap()
    sign = _sign(high)
    shift = (8 * (16 - size)).astype(WORD)
    over = shift >= 64
    inside = np.where(over, shift - np.uint64(64), shift).astype(WORD)
    # The vacated bits are copies of the sign.
    filled = ~(~np.uint64(0) >> inside) & sign
    shifted = high >> inside | filled
    carry = (high << np.uint64(1)) << (np.uint64(63) - inside)
    return np.where(over, shifted, low >> inside | carry), np.where(over, sign, shifted)


def overflows(low: Words, high: Words, precision: int) -> Bools:
    """Which numbers have more than `precision` digits."""
    sign = _sign(high)
    low, high = low ^ sign, high ^ sign
    # Folding a negative number gives |x| - 1, so its limit is one lower.
    limit_high, limit_low = divmod(10**precision, 2**64)
    limit = np.uint64(limit_low) - (sign & np.uint64(1))
    return np.asarray((high > limit_high) | (high == limit_high) & (low >= limit))


def _sign(high: Words) -> Words:
    """All ones for a negative number, else zero."""
    return (high.view("<i8") >> 63).view(WORD)
