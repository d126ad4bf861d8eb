"""Exact sums of doubles by group: no order, batching or delete leaves a trace in them.

A superaccumulator, after Kulisch and Neal's xsum: a sum is one wide integer that counts the
smallest double, 2^-1074, in limbs of 32 bits; it is rounded only when it is read. NaN and the
infinities have no place in it and are counted beside it, so that deleting them brings it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from everview.codec.buffers import Bytes, Ints, binary_array, data_of, gather, offsets_of

Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_LIMB = 0xFFFFFFFF
_FRACTION = (1 << 52) - 1
_MAGNITUDE = (1 << 63) - 1
_SMALLEST = -1074
# A row adds less than 2^32 times its weight to a limb, so 64 bits have room for weights of nearly
# 2^31 in all: up to _ROOM since the last carry, then one more chunk of rows. That is 2^29 at most,
# since weights are cut to 16 bits.
_ROWS = 1 << 14
_ROOM = 1 << 30
_SPECIALS = 0x80


@dataclass(frozen=True, eq=False)
class Sums:
    """The exact sums of some groups.

    All hold the same window of limbs, from limb `low` on, no wider than the values needed. `limbs`
    has a row for each limb and a column for each group: two's complement, the top limb signed of
    32 bits, those below it unsigned. `specials` counts NaN, inf and -inf. Never changed in place.
    """

    low: int
    limbs: Ints
    specials: Ints

    @staticmethod
    def of(values: Doubles, weights: Ints, groups: Ints, count: int) -> Sums:
        """The sums of values times weights; groups say to which of `count` sums each value goes.

        Any weight will do; those beyond 16 bits take another pass for each 16. -0.0 is 0.0.
        """
        light = weights.astype(np.int16).astype(np.int64)
        heavy = light != weights
        if heavy.any():
            upper = (weights >> 16) + (light < 0)
            rest = Sums.of(values[heavy], upper[heavy], groups[heavy], count)
            rest = Sums(rest.low, _carried(rest.limbs << 16), rest.specials << 16)
            return rest + Sums.of(values, light, groups, count)
        specials = np.zeros((3, count), np.int64)
        odd = ~np.isfinite(values)
        if odd.any():
            which = np.select([np.isnan(values[odd]), values[odd] > 0], [0, 1], 2)
            np.add.at(specials, (which, groups[odd]), weights[odd])
            values = np.where(odd, 0.0, values)
        low, width = _window(values)
        limbs = np.zeros((width, count), np.int64)
        spent = 0
        for start in range(0, len(values) if width else 0, _ROWS):
            rows = slice(start, start + _ROWS)
            _deposit(limbs, low, values[rows], weights[rows], groups[rows])
            spent += int(np.abs(weights[rows]).sum())
            if spent > _ROOM:
                limbs, spent = _carried(limbs), 0
        return Sums(low, _carried(limbs), specials)

    def __add__(self, other: Sums) -> Sums:
        both = [sums for sums in (self, other) if len(sums.limbs)]
        low = min((sums.low for sums in both), default=0)
        high = max((sums.low + len(sums.limbs) for sums in both), default=0)
        limbs = np.zeros((high - low, self.limbs.shape[1]), np.int64)
        # the carry takes the sign of a narrower window up into the limbs above it
        for sums in both:
            limbs[sums.low - low :][: len(sums.limbs)] += sums.limbs
        return Sums(low, _carried(limbs), self.specials + other.specials)

    def doubles(self) -> Doubles:
        """The sums, each rounded once, half to even.

        A sum that is too large is an infinity; one with a NaN or both infinities is NaN; one of no
        values is 0.0.
        """
        limbs = _above_zeros(self.limbs, 2)
        negative = limbs[-1] < 0
        limbs = _carried(np.where(negative, -limbs, limbs))
        nonzero = limbs != 0
        top = _last(nonzero)
        first, second, third = (limbs[top - i, np.arange(len(top))] for i in range(3))
        used = np.frexp(first.astype(np.float64))[1].astype(np.int64)
        spare = 32 - used
        # 64 bits from the first set bit on; the last also stands for all that lies below, so that
        # the cast sees a tie only where there is one. A subnormal has too few bits to be rounded.
        bits = (first << 32 | second).astype(np.uint64) << spare.astype(np.uint64)
        rest = (third << spare & _LIMB != 0) | (nonzero.argmax(axis=0) < top - 2)
        bits |= (third >> used | rest).astype(np.uint64)
        exponents = 32 * (self.low + top - 3) - spare + _SMALLEST
        with np.errstate(over="ignore"):
            totals: Doubles = np.ldexp(bits.astype(np.float64), exponents)
        totals[negative] *= -1
        nan, plus, minus = self.specials != 0
        totals[plus] = np.inf
        totals[minus] = -np.inf
        totals[nan | (plus & minus)] = np.nan
        return totals

    def exact(self) -> list[int | None]:
        """The sums in units of the smallest double; None where there is a NaN or an infinity."""
        totals = np.zeros(self.limbs.shape[1], object)
        for limb in self.limbs[::-1]:
            totals = (totals << 32) + limb.astype(object)
        special = (self.specials != 0).any(axis=0)
        scaled = totals << (32 * self.low)
        return [None if odd else int(n) for n, odd in zip(scaled, special, strict=True)]

    def encode(self) -> pa.BinaryArray:
        """The sums as bytes, equal for equal sums; a sum of no values has no bytes.

        A byte: where the limbs start, and 0x80 if there are specials; the three counts of these
        (i64), if any; the limbs (u32) from the first that is not 0 to the last that says more than
        the sign. Little endian.
        """
        limbs = _above_zeros(self.limbs, 1)
        negative = limbs[-1] < 0
        limbs &= _LIMB
        nonzero = limbs != 0
        first = nonzero.argmax(axis=0)
        last = _last(limbs != np.where(negative, _LIMB, 0))
        last += limbs[last, np.arange(len(last))] >> 31 != negative
        finite: Flags = nonzero.any(axis=0)
        special: Flags = (self.specials != 0).any(axis=0)
        place = np.arange(len(limbs))[:, None]
        is_written = (first <= place) & (place <= last) & finite
        head = (self.low - 1 + first) * finite + _SPECIALS * special
        cells = [_bytes(head[None], "u1"), _bytes(self.specials, "<i8"), _bytes(limbs, "<u4")]
        masks = [
            (finite | special)[:, None],
            special[:, None].repeat(24, 1),
            is_written.T.repeat(4, 1),
        ]
        mask = np.hstack(masks)
        offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
        return binary_array(np.hstack(cells)[mask], offsets)

    @staticmethod
    def decode(data: pa.BinaryArray) -> Sums:
        """The inverse of `encode`."""
        raw, offsets = data_of(data), offsets_of(data).astype(np.int64)
        starts, sizes = offsets[:-1], np.diff(offsets)
        head = np.zeros(len(starts), np.int64)
        head[sizes > 0] = raw[starts[sizes > 0]]
        special = head >= _SPECIALS
        specials = np.zeros((3, len(starts)), np.int64)
        specials[:, special] = gather(raw, starts[special] + 1, np.dtype(("<i8", 3))).T
        lengths = (sizes - np.where(special, 25, 1)) >> 2
        lengths[sizes == 0] = 0
        finite = lengths > 0
        first = head & ~_SPECIALS
        low = int(first[finite].min(initial=_SPECIALS))
        high = int((first + lengths)[finite].max(initial=low))
        limbs = np.zeros((high - low, len(starts)), np.int64)
        # the limbs of all sums one after another: whose they are, and which of its limbs
        groups = np.arange(len(starts)).repeat(lengths)
        place = np.arange(len(groups)) - (np.cumsum(lengths) - lengths)[groups]
        begin = (offsets[1:] - 4 * lengths)[groups]
        words = gather(raw, begin + 4 * place, np.dtype("<i4")).astype(np.int64)
        words[place + 1 < lengths[groups]] &= _LIMB
        limbs[first[groups] + place - low, groups] = words
        return Sums(low, _carried(limbs), specials)


def _window(values: Doubles) -> tuple[int, int]:
    """The lowest limb that finite values reach and how many; none if all are zero."""
    magnitudes = np.ascontiguousarray(values).view(np.int64) & _MAGNITUDE
    largest = magnitudes.max(initial=0)
    if largest == 0:
        return 0, 0
    smallest = magnitudes.min(initial=largest, where=magnitudes > 0)
    low, high = (max(int(bits) >> 52, 1) - 1 >> 5 for bits in (smallest, largest))
    return low, high - low + 3


def _deposit(limbs: Ints, low: int, values: Doubles, weights: Ints, groups: Ints) -> None:
    """Add finite values times weights: 53 bits, shifted to their place, lie in three limbs."""
    bits = np.ascontiguousarray(values).view(np.int64)
    exponents = bits >> 52 & 0x7FF
    normal = np.minimum(exponents, 1)
    mantissas = bits & _FRACTION | normal << 52
    exponents -= normal
    shifts = exponents & 31
    lower = (mantissas & _LIMB) << shifts
    upper = (mantissas >> 32) << shifts
    weights = np.where(bits < 0, -weights, weights)
    # only a zero can lie below the window, and it adds nothing wherever it goes
    places = np.maximum((exponents >> 5) - low, 0) * limbs.shape[1] + groups
    flat = limbs.reshape(-1)
    for limb in (lower & _LIMB, lower >> 32 | upper & _LIMB, upper >> 32):
        np.add.at(flat, places, limb * weights)
        places += limbs.shape[1]


def _carried(limbs: Ints) -> Ints:
    """The same sums with all limbs in their range; in place, unless the top limb needs another."""
    for below, above in pairwise(limbs):
        above += below >> 32
        below &= _LIMB
    if len(limbs) and np.any(limbs[-1] != limbs[-1].astype(np.int32)):
        limbs = np.vstack([limbs, limbs[-1] >> 32])
        limbs[-2] &= _LIMB
    return limbs


def _above_zeros(limbs: Ints, zeros: int) -> Ints:
    """A copy with limbs of zero below."""
    return np.vstack([np.zeros((zeros, limbs.shape[1]), np.int64), limbs])


def _last(flags: Flags) -> Ints:
    """The last row that is true, of each column; the first if none is."""
    place = np.arange(len(flags), dtype=np.int8)[:, None]
    last: Ints = (place * flags).max(axis=0).astype(np.int64)
    return last


def _bytes(numbers: Ints, dtype: str) -> Bytes:
    """The bytes of each column, as a row."""
    return np.ascontiguousarray(numbers.T, np.dtype(dtype)).view(np.uint8)
