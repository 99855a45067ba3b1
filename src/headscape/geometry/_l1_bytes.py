"""The compiled kernels of the dithered EMD: features as bytes, and L1 distances between rows of bytes.

Processors sum the absolute differences of many bytes in one instruction (x86: PSADBW), which no compiler finds in a
loop over pairs of rows; a tile of pairs keeps its sums in registers while the bytes pass by. Like its float32 sibling,
in a module of its own because importing numba takes a noticeable time.
"""

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic as numba_intrinsic

from headscape.geometry._l1_tile import everywhere

cgutils: Any = numba_cgutils  # numba's own types know neither
intrinsic: Any = numba_intrinsic

_FEATURES = binding.get_host_cpu_features()
_INSTRUCTIONS = (
    ("avx512bw", 64, "avx512.psad.bw.512"),
    ("avx2", 32, "avx2.psad.bw"),
    ("sse2", 16, "sse2.psad.bw"),
)
_FOUND = next(((size, name) for flag, size, name in _INSTRUCTIONS if _FEATURES.get(flag, False)), (16, None))
VECTOR_BYTES, _INSTRUCTION = _FOUND
"""Bytes of a vector, and the instruction that sums absolute differences of bytes, if the processor has one."""
GROUP = 8
"""Points are padded to a multiple of this by zeros; those of a group share how many of their leading bytes count."""
LANES = VECTOR_BYTES // 8 if _INSTRUCTION else VECTOR_BYTES
"""Sums of absolute differences that a vector keeps side by side."""
_ROWS, _COLUMNS = 4, 2
_CHAINS = 4
_SQUARE = 16
_NEAR = 64  # points whose bytes stay in the second cache while all others pass by
_INT = ir.IntType(64)


@intrinsic
def _add_sad_tile(typing_context, x, i, j, begin, end, scale, sums, bounds):  # type: ignore[no-untyped-def]
    """Add L1 distances between rows i, ... and rows j, ... of bytes, over bytes begin to end, in units of ``scale``.

    ``sums`` (pair, LANES) gets what the lanes of a vector have found, ``bounds`` the bounds of their variances.
    """
    place = types.int64
    return types.void(x, place, place, place, place, types.float64, sums, bounds), _code


def _code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Build the loop over bytes."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0])
    sums, bounds = (
        context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (-2, -1)
    )
    i, j, begin, end, scale = arguments[1:-2]
    width = cgutils.unpack_tuple(builder, data.shape)[1]
    vector = ir.VectorType(ir.IntType(8), VECTOR_BYTES)
    rows, columns = (
        [builder.mul(builder.add(first, _number(step)), width) for step in range(count)]
        for first, count in ((i, _ROWS), (j, _COLUMNS))
    )
    before = builder.block
    loop, done = builder.append_basic_block("bytes"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_INT)
    k.add_incoming(begin, before)

    def loaded(row: Any) -> Any:
        pointer = builder.bitcast(builder.gep(data.data, [builder.add(row, k)]), vector.as_pointer())
        return builder.load(pointer, align=1)

    kind = ir.VectorType(_INT, LANES)
    totals = [builder.phi(kind) for _ in range(_ROWS * _COLUMNS)]
    others = [loaded(column) for column in columns]
    new = []
    for place, row in enumerate(rows):
        one = loaded(row)
        for total, other in zip(totals[place * _COLUMNS :], others, strict=False):
            new.append(builder.add(total, _absolute_differences(builder, one, other, kind)))
            total.add_incoming(ir.Constant(kind, None), before)
            total.add_incoming(new[-1], loop)
    following = builder.add(k, _number(VECTOR_BYTES))
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
    builder.position_at_end(done)
    doubles = ir.VectorType(ir.DoubleType(), LANES)
    share = builder.sitofp(builder.sub(end, begin), ir.DoubleType())
    largest, unit, square = (
        everywhere(builder, value, doubles)
        for value in (
            builder.fmul(share, ir.Constant(ir.DoubleType(), 0.25 / LANES)),
            scale,
            builder.fmul(scale, scale),
        )
    )
    for place, total in enumerate(new):
        found = _as_doubles(builder, total, doubles)
        least = builder.select(builder.fcmp_ordered("<", found, largest), found, largest)
        for data, value in ((sums, builder.fmul(found, unit)), (bounds, builder.fmul(least, square))):
            at = builder.bitcast(builder.gep(data, [_number(place * LANES)]), doubles.as_pointer())
            builder.store(builder.fadd(builder.load(at, align=8), value), at, align=8)
    return context.get_dummy_value()


def _as_doubles(builder: Any, total: Any, doubles: Any) -> Any:
    """Return sums below 2^52 as numbers: as the last digits of 2^52 + sum, which older processors have, too."""
    digits = ir.Constant(total.type, [0x4330000000000000] * LANES)
    whole = builder.bitcast(builder.or_(total, digits), doubles)
    return builder.fsub(whole, ir.Constant(doubles, [2.0**52] * LANES))


def _absolute_differences(builder: Any, one: Any, other: Any, kind: Any) -> Any:
    """Return sums of absolute differences of bytes, in as many lanes as the instruction has, or one for each byte."""
    if _INSTRUCTION:
        function = ir.FunctionType(kind, [one.type, one.type])
        name = f"llvm.x86.{_INSTRUCTION}"
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), [one, other])
    larger = builder.icmp_unsigned(">", one, other)
    gap = builder.select(larger, builder.sub(one, other), builder.sub(other, one))
    return builder.zext(gap, kind)


def _number(value: int) -> Any:
    return ir.Constant(_INT, value)


@njit(nogil=True, cache=True)
def add_byte_distances(x, first, scale, filled, below, out):  # type: ignore[no-untyped-def]
    """Add the L1 distances between rows of bytes to ``out[0]``, and bounds of their variances to ``out[1]``.

    The vectors ``first[c]`` to ``first[c + 1]`` of a row hold features in units of ``scale[c]``. Of these,
    ``filled`` (class, group) leading ones are not all zero in a group of rows; ``below`` (row, vector + 1) sums the
    bytes before each vector. Where one of two groups has zeros only, their distances are the sums of the other. Upper
    triangle; the number of rows is a multiple of GROUP.
    """
    n, tile = len(x), _ROWS * _COLUMNS
    parts, rests = np.zeros((2, tile, LANES)), np.zeros((2, tile))
    for near in range(0, n, _NEAR):
        for p in range(0, min(near + _NEAR, n), GROUP):
            for q in range(max(near, p), min(near + _NEAR, n), GROUP):
                for i in range(p, p + GROUP, _ROWS):
                    for j in range(q, q + GROUP, _COLUMNS):
                        parts[:] = 0.0
                        rests[:] = 0.0
                        for c in range(len(scale)):
                            a, b = filled[c, p // GROUP], filled[c, q // GROUP]
                            begin, common, last = first[c], first[c] + min(a, b), first[c] + max(a, b)
                            if common > begin:
                                start, stop = begin * VECTOR_BYTES, common * VECTOR_BYTES
                                _add_sad_tile(x, i, j, start, stop, scale[c], parts[0], parts[1])
                            if last > common:
                                largest = 0.25 * VECTOR_BYTES * (last - common)
                                for place in range(tile):
                                    full = i + place // _COLUMNS if a > b else j + place % _COLUMNS
                                    rest = float(below[full, last] - below[full, common])
                                    rests[0, place] += scale[c] * rest
                                    rests[1, place] += scale[c] * scale[c] * min(rest, largest)
                        for k in range(2):
                            for place in range(tile):
                                total = rests[k, place]
                                for lane in range(LANES):
                                    total += parts[k, place, lane]
                                out[k, i + place // _COLUMNS, j + place % _COLUMNS] += total


@njit(nogil=True, cache=True)
def write_bytes(features, low, factor, dither, source, first, x, filled, below):  # type: ignore[no-untyped-def]
    """Write floor((feature - low) factor + dither) as bytes, with their sums and zeros, to arrays of zeros.

    The bytes of a row are of the features ``source``; that behind the last feature is 0.
    """
    count = len(low)
    rounded = np.zeros(count + 1, np.uint8)
    for point in range(len(features)):
        row, values = x[point], features[point]
        for f in range(count):
            rounded[f] = np.uint8(np.int32((values[f] - low[f]) * factor[f] + dither[f]))
        for k in range(len(source)):
            row[k] = rounded[source[k]]
        for c in range(len(filled)):
            end = 0
            for vector in range(first[c], first[c + 1]):
                total = 0
                for k in range(vector * VECTOR_BYTES, (vector + 1) * VECTOR_BYTES):
                    total += row[k]
                below[point, vector + 1] = below[point, vector] + total
                if total > 0:
                    end = vector + 1 - first[c]
            filled[c, point // GROUP] = max(filled[c, point // GROUP], end)


@njit(nogil=True, cache=True)
def add_sketch(features, low, weight, bucket, out):  # type: ignore[no-untyped-def]
    """Add the features, times their weights, to the buckets (point, bucket) that they were drawn for."""
    for point in range(len(features)):
        row, values = out[point], features[point]
        for f in range(len(bucket)):
            row[bucket[f]] += (values[f] - low[f]) * weight[f]


@njit(nogil=True, cache=True)
def write_features(rows, begin, end, outer, order, start, stop, inner, kept, pairs, at, out):  # type: ignore[no-untyped-def]
    """Write weighted sums of ``rows`` over pairs of folders to the places ``at``, ... of ``out``.

    An outer folder is the rows ``begin`` to ``end``, an inner one the places ``start`` to ``stop`` of ``order``; their
    weights are ``outer`` and ``inner``. The inner folders of an outer one are numbers ``pairs`` (outer folder, 2),
    first and behind the last, of ``kept``. Sums are in float64.
    """
    n, folders = len(order), len(begin)
    sums, below = np.zeros((_CHAINS, n)), np.zeros((n + 1, _CHAINS))
    for first in range(0, folders, _CHAINS):
        some = min(_CHAINS, folders - first)
        for a in range(some):
            sums[a] = rows[begin[first + a]]
            for r in range(begin[first + a] + 1, end[first + a]):
                for k in range(n):
                    sums[a, k] += rows[r, k]
        one, two, three, four = 0.0, 0.0, 0.0, 0.0  # several at once: no addition waits for the one before
        for k in range(n):
            point = order[k]
            one += sums[0, point]
            two += sums[1, point]
            three += sums[2, point]
            four += sums[3, point]
            below[k + 1, 0], below[k + 1, 1], below[k + 1, 2], below[k + 1, 3] = one, two, three, four
        for a in range(some):
            f = first + a
            for k in range(pairs[f, 1] - pairs[f, 0]):
                g = kept[pairs[f, 0] + k]
                out[at[f] + k] = (below[stop[g], a] - below[start[g], a]) * (outer[f] * inner[g])


@njit(nogil=True, cache=True)
def transposed(x):  # type: ignore[no-untyped-def]
    """Return the transpose, copied in small squares: numpy goes through memory with long strides."""
    rows, columns = x.shape
    out = np.empty((columns, rows), x.dtype)
    for a in range(0, rows, _SQUARE):
        for b in range(0, columns, _SQUARE):
            for i in range(b, min(b + _SQUARE, columns)):
                for j in range(a, min(a + _SQUARE, rows)):
                    out[i, j] = x[j, i]
    return out
