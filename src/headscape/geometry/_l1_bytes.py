"""The compiled kernels of the dithered EMD: features as bytes, and L1 distances between rows of bytes.

Processors sum the absolute differences of many bytes in one instruction (x86: PSADBW), which no compiler finds in a loop
over pairs of rows; a tile of pairs keeps its sums in registers while the bytes pass by. Like its float32 sibling, in a
module of its own because importing numba takes a noticeable time.
"""

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic as numba_intrinsic

cgutils: Any = numba_cgutils  # numba's own types know neither
intrinsic: Any = numba_intrinsic

_FEATURES = binding.get_host_cpu_features()
_INSTRUCTIONS = (("avx512bw", 64, "avx512.psad.bw.512"), ("avx2", 32, "avx2.psad.bw"), ("sse2", 16, "sse2.psad.bw"))
_FOUND = next(((size, name) for flag, size, name in _INSTRUCTIONS if _FEATURES.get(flag, False)), (16, None))
VECTOR_BYTES, _INSTRUCTION = _FOUND
"""Bytes of a vector, and the instruction that sums absolute differences of bytes, if the processor has one."""
GROUP = 8
"""Points are padded to a multiple of this by zeros; those of a group share how many of their leading bytes count."""
_ROWS, _COLUMNS = 4, 2
_NEAR = 64  # points whose bytes stay in the second cache while all others pass by
_INT = ir.IntType(64)


@intrinsic
def _sad_tile(typing_context, x, i, j, n, out):  # type: ignore[no-untyped-def]
    """Write the L1 distances between rows i, ... and rows j, ... of bytes to ``out``, over the first n > 0 bytes."""
    place = types.int64
    return types.void(x, place, place, place, out), _code


def _code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Build the loop over bytes."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0])
    sums = context.make_array(signature.args[-1])(context, builder, arguments[-1])
    i, j, n = arguments[1:-1]
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
    k.add_incoming(_number(0), before)

    def loaded(row: Any) -> Any:
        pointer = builder.bitcast(builder.gep(data.data, [builder.add(row, k)]), vector.as_pointer())
        return builder.load(pointer, align=1)

    lanes = VECTOR_BYTES // 8 if _INSTRUCTION else VECTOR_BYTES
    kind = ir.VectorType(_INT, lanes)
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
    builder.cbranch(builder.icmp_signed("<", following, n), loop, done)
    builder.position_at_end(done)
    for place, total in enumerate(new):
        parts = [builder.extract_element(total, ir.Constant(ir.IntType(32), lane)) for lane in range(lanes)]
        whole = parts[0]
        for part in parts[1:]:
            whole = builder.add(whole, part)
        builder.store(whole, builder.gep(sums.data, [_number(place)]))
    return context.get_dummy_value()


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
def add_byte_distances(x, filled, below, scale, out):  # type: ignore[no-untyped-def]
    """Add scale times the L1 distances between rows of bytes to ``out[0]``, and a bound of their variances to ``out[1]``.

    ``filled`` (group) tells how many leading bytes of a group are not all zero, a multiple of VECTOR_BYTES;
    ``below`` (point, vector + 1) sums the bytes before each vector. Where one group has zeros only, its distances to
    another are the sums of that one. Upper triangle; the number of rows is a multiple of GROUP.
    """
    n, last = len(x), below.shape[1] - 1
    sums = np.zeros(_ROWS * _COLUMNS, np.int64)
    for near in range(0, n, _NEAR):
        for p in range(0, min(near + _NEAR, n), GROUP):
            for q in range(max(near, p), min(near + _NEAR, n), GROUP):
                a, b = filled[p // GROUP], filled[q // GROUP]
                common, largest = min(a, b), 0.25 * max(a, b)
                vector = common // VECTOR_BYTES
                for i in range(p, p + GROUP, _ROWS):
                    for j in range(q, q + GROUP, _COLUMNS):
                        if common > 0:
                            _sad_tile(x, i, j, common, sums)
                        for place in range(_ROWS * _COLUMNS):
                            row, column = i + place // _COLUMNS, j + place % _COLUMNS
                            rest = below[row, last] - below[row, vector] + below[column, last] - below[column, vector]
                            total = float(sums[place] + rest) if common > 0 else float(rest)
                            out[0, row, column] += scale * total
                            out[1, row, column] += scale * scale * min(total, largest)


@njit(nogil=True, cache=True)
def write_bytes(features, low, scale, dither, x, filled, below):  # type: ignore[no-untyped-def]
    """Write floor((features - low) / scale + dither) for every point as bytes, and what the distances ask of them."""
    n, width = features.shape
    x[:] = 0
    filled[:] = 0
    inverse = 1.0 / scale
    for point in range(n):
        row = x[point]
        for f in range(width):
            row[f] = np.uint8((features[point, f] - low[f]) * inverse + dither[f])
        below[point, 0] = 0
        end = 0
        for vector in range(below.shape[1] - 1):
            total = 0
            for f in range(vector * VECTOR_BYTES, (vector + 1) * VECTOR_BYTES):
                total += row[f]
            below[point, vector + 1] = below[point, vector] + total
            if total > 0:
                end = (vector + 1) * VECTOR_BYTES
        filled[point // GROUP] = max(filled[point // GROUP], end)
    below[n:] = 0


@njit(nogil=True, cache=True)
def write_features(rows, begin, end, outer, order, start, stop, inner, out):  # type: ignore[no-untyped-def]
    """Write the weighted sums of ``rows`` over pairs of folders to ``out`` (outer folder, inner folder).

    An outer folder is the rows ``begin`` to ``end``, an inner one the places ``start`` to ``stop`` of ``order``; their
    weights are ``outer`` and ``inner``. Sums are in float64.
    """
    n = len(order)
    sums, below = np.empty(rows.shape[1], np.float64), np.zeros(n + 1, np.float64)
    for f in range(len(begin)):
        sums[:] = rows[begin[f]]
        for r in range(begin[f] + 1, end[f]):
            for k in range(n):
                sums[k] += rows[r, k]
        total = 0.0
        for k in range(n):
            total += sums[order[k]]
            below[k + 1] = total
        for g in range(len(start)):
            out[f, g] = (below[stop[g]] - below[start[g]]) * (outer[f] * inner[g])
