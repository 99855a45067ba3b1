"""The compiled kernels of the dithered EMD: features as bytes, and L1 distances between rows of bytes.

As for floats, distances are computed from sums of minima, |a - b| = a + b - 2 min(a, b). Processors add up many bytes
in one instruction (x86: VPDPBUSD, or PSADBW), which no compiler finds in a loop over pairs of rows; a tile of pairs
keeps its sums in registers while the bytes pass by. In a module of its own because importing numba takes a noticeable
time.
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
    ("avx512vnni", 64, "avx512.vpdpbusd.512"),
    ("avx512bw", 64, "avx512.psad.bw.512"),
    ("avx2", 32, "avx2.psad.bw"),
    ("sse2", 16, "sse2.psad.bw"),
)
_FOUND = next(((size, name) for flag, size, name in _INSTRUCTIONS if _FEATURES.get(flag, False)), (16, ""))
VECTOR_BYTES, _INSTRUCTION = _FOUND
"""Bytes of a vector, and the instruction that sums bytes, if the processor has one."""
GROUP = 8
"""Points are padded to a multiple of this by zeros; those of a group share how many of their leading bytes count."""
LANES = 8
"""Sums of minima that a pair keeps side by side."""
_ROWS, _COLUMNS = 4, 2
_CHAINS = 4
_SQUARE = 16
_NEAR = 64  # points whose bytes stay in the second cache while all others pass by
_INT = ir.IntType(64)


@intrinsic
def _write_minima_tile(typing_context, x, i, j, begin, end, scale, count, out):  # type: ignore[no-untyped-def]
    """Write sums of minima of rows i, ... and rows j, ... of bytes over ``count`` classes, one at least.

    Class c are bytes ``begin[c]`` to ``end[c]``, one vector at least, in units of ``scale[c]``. ``out`` (pair, LANES)
    is to be summed up.
    """
    place = types.int64
    return types.void(x, place, place, begin, end, scale, place, out), _code


def _code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Build the loop over classes, and within it that over bytes; all sums stay in registers."""
    data, begins, ends, scales, out = (
        context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 3, 4, 5, 7)
    )
    i, j, count = (arguments[k] for k in (1, 2, 6))
    width = cgutils.unpack_tuple(builder, data.shape)[1]
    vector, kind = ir.VectorType(ir.IntType(8), VECTOR_BYTES), _sum_type()
    doubles = ir.VectorType(ir.DoubleType(), LANES)
    pairs = range(_ROWS * _COLUMNS)
    rows, columns = (
        [builder.mul(builder.add(first, _number(step)), width) for step in range(size)]
        for first, size in ((i, _ROWS), (j, _COLUMNS))
    )
    before = builder.block
    each, loop, closing, done = map(builder.append_basic_block, ("class", "bytes", "closing", "done"))
    builder.branch(each)
    builder.position_at_end(each)
    c = builder.phi(_INT)
    c.add_incoming(_number(0), before)
    known = [builder.phi(doubles) for _ in pairs]
    begin, end, scale = (builder.load(builder.gep(array.data, [c])) for array in (begins, ends, scales))
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_INT)
    k.add_incoming(begin, each)

    def loaded(row: Any) -> Any:
        pointer = builder.bitcast(builder.gep(data.data, [builder.add(row, k)]), vector.as_pointer())
        return builder.load(pointer, align=1)

    totals = [builder.phi(kind) for _ in pairs]
    others = [loaded(column) for column in columns]
    new = []
    for place, row in enumerate(rows):
        one = loaded(row)
        for total, other in zip(totals[place * _COLUMNS :], others, strict=False):
            least = builder.select(builder.icmp_unsigned("<", one, other), one, other)
            new.append(_with_bytes(builder, total, least))
            total.add_incoming(ir.Constant(kind, None), each)
            total.add_incoming(new[-1], loop)
    following = builder.add(k, _number(VECTOR_BYTES))
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, end), loop, closing)
    builder.position_at_end(closing)
    unit = everywhere(builder, scale, doubles)
    for place, total in enumerate(new):
        found = builder.uitofp(_folded(builder, total), doubles)
        added = builder.fadd(known[place], builder.fmul(found, unit))
        known[place].add_incoming(ir.Constant(doubles, None), before)
        known[place].add_incoming(added, closing)
        known[place] = added
    following = builder.add(c, _number(1))
    c.add_incoming(following, closing)
    builder.cbranch(builder.icmp_signed("<", following, count), each, done)
    builder.position_at_end(done)
    for place, value in enumerate(known):
        pointer = builder.gep(out.data, [_number(place * LANES)])
        builder.store(value, builder.bitcast(pointer, doubles.as_pointer()), align=8)
    return context.get_dummy_value()


def _sum_type() -> Any:
    """Return the vector in which bytes are summed up: lanes of 32 bits hold 8 million of them."""
    if "psad" in _INSTRUCTION:
        return ir.VectorType(_INT, VECTOR_BYTES // 8)
    return ir.VectorType(ir.IntType(32), VECTOR_BYTES // 4 if _INSTRUCTION else VECTOR_BYTES)


def _with_bytes(builder: Any, total: Any, values: Any) -> Any:
    """Return sums with those of some more bytes."""
    kind = total.type
    if not _INSTRUCTION:
        return builder.add(total, builder.zext(values, kind))
    name, fused = f"llvm.x86.{_INSTRUCTION}", "vpdpbusd" in _INSTRUCTION
    given = [kind] * 3 if fused else [values.type] * 2
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, given), name)
    if fused:
        ones = ir.Constant(kind, [0x01010101] * kind.count)
        return builder.call(function, [total, builder.bitcast(values, kind), ones])
    return builder.add(total, builder.call(function, [values, ir.Constant(values.type, None)]))


def _folded(builder: Any, total: Any) -> Any:
    """Return sums in LANES lanes, whatever the number of theirs."""
    while total.type.count > LANES:
        half = total.type.count // 2
        parts = []
        for begin in (0, half):
            places = ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(begin, begin + half)))
            parts.append(builder.shuffle_vector(total, total, places))
        total = builder.add(*parts)
    if total.type.count < LANES:
        places = [*range(total.type.count), *[total.type.count] * (LANES - total.type.count)]
        nothing = ir.Constant(total.type, None)
        total = builder.shuffle_vector(
            total, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), places)
        )
    return total


def _number(value: int) -> Any:
    return ir.Constant(_INT, value)


@njit(nogil=True, fastmath={"reassoc"}, cache=True)
def add_byte_distances(x, first, size, scale, filled, sums, out):  # type: ignore[no-untyped-def]
    """Add the L1 distances between rows of bytes to ``out[0]``, and bounds of their variances to ``out[1]``.

    The vectors ``first[c]`` to ``first[c + 1]`` of a row hold ``size[c]`` features in units of ``scale[c]``. Of these,
    ``filled`` (class, group) leading ones are not all zero in a group of rows; ``sums`` are those of whole rows, in
    units of 1. Upper triangle; the number of rows is a multiple of GROUP.
    """
    n, tile, classes = len(x), _ROWS * _COLUMNS, len(scale)
    parts = np.zeros((tile, LANES))
    begin, end, unit = np.empty(classes, np.int64), np.empty(classes, np.int64), np.empty(classes)
    for near in range(0, n, _NEAR):
        # Rows i, ... stay in the first cache while those nearby pass by.
        for i in range(0, min(near + _NEAR, n), _ROWS):
            p = i // GROUP
            for q in range(max(near // GROUP, p), min(near + _NEAR, n) // GROUP):
                count, bound, largest = 0, 0.0, 0.0
                for c in range(classes):
                    a, b = filled[c, p], filled[c, q]
                    if max(a, b) > 0:
                        largest = max(largest, scale[c])
                    bound += 0.25 * min(VECTOR_BYTES * max(a, b), size[c]) * scale[c] * scale[c]
                    if min(a, b) > 0:
                        begin[count] = first[c] * VECTOR_BYTES
                        end[count] = (first[c] + min(a, b)) * VECTOR_BYTES
                        unit[count] = scale[c]
                        count += 1
                parts[:] = 0.0
                for j in range(q * GROUP, (q + 1) * GROUP, _COLUMNS):
                    if count:
                        _write_minima_tile(x, i, j, begin, end, unit, count, parts)
                    for place in range(tile):
                        row, column = i + place // _COLUMNS, j + place % _COLUMNS
                        least = 0.0
                        for lane in range(LANES):
                            least += parts[place, lane]
                        distance = sums[row] + sums[column] - 2.0 * least
                        out[0, row, column] += distance
                        out[1, row, column] += min(bound, largest * distance)


@njit(nogil=True, cache=True)
def write_bytes(features, low, factor, dither, source, first, scale, x, filled, sums):  # type: ignore[no-untyped-def]
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
            end, whole = 0, 0
            for vector in range(first[c], first[c + 1]):
                total = 0
                for k in range(vector * VECTOR_BYTES, (vector + 1) * VECTOR_BYTES):
                    total += row[k]
                whole += total
                if total > 0:
                    end = vector + 1 - first[c]
            sums[point] += scale[c] * whole
            filled[c, point // GROUP] = max(filled[c, point // GROUP], end)


@njit(nogil=True, cache=True)
def add_sketch(features, low, weight, out):  # type: ignore[no-untyped-def]
    """Add the features, times their weights, to the buckets (point, bucket), one after the other in turn."""
    buckets = out.shape[1]
    sums = np.zeros(buckets, weight.dtype)
    for point in range(len(features)):
        values = features[point]
        sums[:] = 0
        for begin in range(0, len(low), buckets):
            part = slice(begin, begin + buckets)
            some, least, factor = values[part], low[part], weight[part]
            for bucket in range(len(factor)):
                sums[bucket] += (some[bucket] - least[bucket]) * factor[bucket]
        for bucket in range(buckets):
            out[point, bucket] += sums[bucket]


@njit(nogil=True, cache=True)
def write_bounds(features, low, high):  # type: ignore[no-untyped-def]
    """Write the smallest and the largest value of every feature (point, feature)."""
    low[:] = features[0]
    high[:] = features[0]
    for point in range(1, len(features)):
        values = features[point]
        for f in range(len(low)):
            low[f] = values[f] if values[f] < low[f] else low[f]
            high[f] = values[f] if values[f] > high[f] else high[f]


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
