"""The innermost steps of the kernels of distances and inner products, in vector operations that no compiler finds.

A distance is computed from sums of minima, because |a - b| = a + b - 2 min(a, b): per feature and pair of points one
minimum and one sum, where the magnitude of a difference takes three operations.

A panel holds the features of ``PANEL`` points, those of one feature side by side. A tile is a block of pairs of points:
some points of one panel against one vector of points of another. Its sums stay in vector registers while the features
pass by, as in a matrix product; nothing is summed across lanes.
"""

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic as numba_intrinsic

from headscape.geometry.arranged import PANEL

cgutils: Any = numba_cgutils  # numba's own types know neither
intrinsic: Any = numba_intrinsic

_FEATURES = binding.get_host_cpu_features()
_WIDE = bool(_FEATURES.get("avx512f", False))
_FUSED = bool(_FEATURES.get("fma", False))
VECTOR_BYTES = 64 if _WIDE else 32
"""Bytes of a vector; on processors with shorter ones the compiler takes two for one."""
TILE_POINTS = 16 if _WIDE else 8
"""Points of a tile: as many sums as fit into the registers with their operands."""
TERMS = 32
"""Terms of the innermost sums; those are summed up in turn, so that rounding does not grow with their number."""


@intrinsic
def add_minima_tile(typing_context, x, p, i, q, j, begin, end, out):  # type: ignore[no-untyped-def]
    """Add the sums of minima of points i, ... of panel p and one vector of points j, ... of panel q.

    ``x`` (panel, feature, PANEL) is contiguous, ``out`` (point, point) float64. Features begin to end - 1, at least
    one of them, are summed in the dtype of x: :data:`TERMS` of them at a time, then these sums.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = _ones(builder, _vector_of(context, signature.args[0].dtype)) if _FUSED else None

        def added(total: Any, point: Any, others: Any) -> Any:
            # Compilers know this form of the minimum, which is one instruction; that of the standard cares about NaN.
            least = builder.select(builder.fcmp_ordered("<", point, others), point, others)
            return builder.fadd(total, least) if one is None else _fused(builder, least, one, total)

        return _add_tile(context, builder, signature, arguments, added)

    place = types.int64
    return types.void(x, place, place, place, place, place, place, out), code


@intrinsic
def add_products_tile(typing_context, x, p, i, q, j, begin, end, out):  # type: ignore[no-untyped-def]
    """Add the inner products of the same points, in the same way."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def added(total: Any, point: Any, others: Any) -> Any:
            return _fused(builder, point, others, total)

        return _add_tile(context, builder, signature, arguments, added)

    place = types.int64
    return types.void(x, place, place, place, place, place, place, out), code


def _add_tile(context: Any, builder: Any, signature: Any, arguments: Any, added: Any) -> Any:
    """Build the loop over features; ``added`` adds a term to a sum, given one point and the vector of others."""
    _prefer_long_vectors(builder.function)
    x_type, out_type = signature.args[0], signature.args[-1]
    data = context.make_array(x_type)(context, builder, arguments[0])
    sums = context.make_array(out_type)(context, builder, arguments[-1])
    p, i, q, j, begin, end = arguments[1:-1]
    vector = _vector_of(context, x_type.dtype)
    doubles = ir.VectorType(ir.DoubleType(), vector.count)

    def constant(value: int) -> Any:
        return ir.Constant(ir.IntType(64), value)

    panel = builder.mul(cgutils.unpack_tuple(builder, data.shape)[1], constant(PANEL))
    row, column = builder.add(builder.mul(p, panel), i), builder.add(builder.mul(q, panel), j)
    nothing = ir.Constant(vector, None)
    before = builder.block
    part, loop, done, after = map(builder.append_basic_block, ("part", "features", "done", "after"))
    builder.branch(part)
    builder.position_at_end(part)
    start = builder.phi(ir.IntType(64))
    start.add_incoming(begin, before)
    sums_before = [builder.phi(vector) for _ in range(TILE_POINTS)]
    stop = builder.add(start, constant(TERMS))
    stop = builder.select(builder.icmp_signed("<", stop, end), stop, end)
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(ir.IntType(64))
    k.add_incoming(start, part)
    totals = [builder.phi(vector) for _ in range(TILE_POINTS)]
    offset = builder.mul(k, constant(PANEL))
    others = _vector_at(builder, data.data, builder.add(column, offset), vector)
    new = []
    for place, total in enumerate(totals):
        point = builder.load(builder.gep(data.data, [builder.add(builder.add(row, offset), constant(place))]))
        new.append(added(total, everywhere(builder, point, vector), others))
        total.add_incoming(nothing, part)
        total.add_incoming(new[-1], loop)
    following = builder.add(k, constant(1))
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, stop), loop, done)
    builder.position_at_end(done)
    start.add_incoming(stop, done)
    new = [builder.fadd(known, total) for known, total in zip(sums_before, new, strict=True)]
    for known, total in zip(sums_before, new, strict=True):
        known.add_incoming(nothing, before)
        known.add_incoming(total, done)
    builder.cbranch(builder.icmp_signed("<", stop, end), part, after)
    builder.position_at_end(after)
    width = cgutils.unpack_tuple(builder, sums.shape)[1]
    across = builder.add(builder.mul(q, constant(PANEL)), j)
    for place, total in enumerate(new):
        down = builder.add(builder.add(builder.mul(p, constant(PANEL)), i), constant(place))
        at = builder.gep(sums.data, [builder.add(builder.mul(down, width), across)])
        at = builder.bitcast(at, doubles.as_pointer())
        wide = total if x_type.dtype == types.float64 else builder.fpext(total, doubles)
        builder.store(builder.fadd(builder.load(at, align=8), wide), at, align=8)
    return context.get_dummy_value()


def _vector_of(context: Any, dtype: Any) -> Any:
    """Return the type of a vector of numbers of a dtype."""
    return ir.VectorType(context.get_data_type(dtype), VECTOR_BYTES * 8 // dtype.bitwidth)


def _fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, rounded once."""
    kind = a.type
    name = f"llvm.fma.v{kind.count}{'f64' if kind.element == ir.DoubleType() else 'f32'}"
    function = ir.FunctionType(kind, [kind] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), [a, b, c])


def _ones(builder: Any, kind: Any) -> Any:
    """Return ones that the compiler does not know for such, because they have passed through code that does nothing.

    A sum as a fused product with 1 is exact. Zen processors take minima and plain sums in the same two units, and
    fused products in two others: beside each other they are 1.6 times as fast.
    """
    unknown = ir.InlineAsm(ir.FunctionType(kind, [kind]), "", "=v,0" if _WIDE else "=x,0")
    return builder.call(unknown, [ir.Constant(kind, [1.0] * kind.count)])


@intrinsic
def copy_points(typing_context, x, to, source, at):  # type: ignore[no-untyped-def]
    """Copy PANEL numbers from place ``at`` of a contiguous array to place ``to`` of another, counted from its start."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (_points(context, builder, signature, arguments, i) for i in (0, 2))
        builder.store(builder.load(source, align=4), target, align=4)
        return context.get_dummy_value()

    return types.void(x, types.int64, source, types.int64), code


@intrinsic
def add_points(typing_context, x, to, source, at):  # type: ignore[no-untyped-def]
    """Add PANEL numbers from place ``at`` of a contiguous array to those at place ``to`` of another."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (_points(context, builder, signature, arguments, i) for i in (0, 2))
        total = builder.fadd(builder.load(target, align=4), builder.load(source, align=4))
        builder.store(total, target, align=4)
        return context.get_dummy_value()

    return types.void(x, types.int64, source, types.int64), code


@intrinsic
def scale_points(typing_context, x, to, source, at, factor, shift):  # type: ignore[no-untyped-def]
    """Write PANEL numbers from place ``at`` of an array, times a factor less a shift, to place ``to`` of another."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (_points(context, builder, signature, arguments, i) for i in (0, 2))
        values = builder.load(source, align=4)
        factor, shift = (everywhere(builder, number, values.type) for number in arguments[4:])
        builder.store(builder.fsub(builder.fmul(values, factor), shift), target, align=4)
        return context.get_dummy_value()

    return types.void(x, types.int64, source, types.int64, x.dtype, x.dtype), code


@intrinsic
def any_point(typing_context, x, at):  # type: ignore[no-untyped-def]
    """Tell whether one of PANEL numbers at place ``at`` of a contiguous array differs from zero."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = builder.load(_points(context, builder, signature, arguments, 0), align=4)
        differ = builder.fcmp_unordered("!=", values, ir.Constant(values.type, None))
        bits = ir.IntType(PANEL)
        return builder.icmp_unsigned("!=", builder.bitcast(differ, bits), ir.Constant(bits, 0))

    return types.boolean(x, types.int64), code


@intrinsic
def transpose_points(typing_context, source, at, step, out, to, width):  # type: ignore[no-untyped-def]
    """Copy a square of PANEL x PANEL numbers, transposed, between places counted from the starts of two arrays.

    Its rows, neighbors in memory, begin at ``at``, ``at + step``, ...; they become the columns of rows of ``out`` that
    begin at ``to``, ``to + width``, ...
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(context.get_data_type(source.dtype), PANEL)
        (data, at, step), (target, to, width) = (
            (
                context.make_array(signature.args[i])(context, builder, arguments[i]).data,
                *arguments[i + 1 : i + 3],
            )
            for i in (0, 3)
        )
        _prefer_long_vectors(builder.function)
        rows = [
            _vector_at(builder, data, builder.add(at, builder.mul(step, at.type(i))), vector)
            for i in range(PANEL)
        ]
        half = PANEL // 2
        # Riffling the rows once for every bit of a place transposes them.
        for _ in range(PANEL.bit_length() - 1):
            rows = [_riffled(builder, rows[i // 2], rows[i // 2 + half], i % 2) for i in range(PANEL)]
        for i, row in enumerate(rows):
            place = builder.gep(target, [builder.add(to, builder.mul(width, to.type(i)))])
            builder.store(row, builder.bitcast(place, vector.as_pointer()), align=4)
        return context.get_dummy_value()

    place = types.int64
    return types.void(source, place, place, out, place, place), code


def _riffled(builder: Any, one: Any, other: Any, upper: int) -> Any:
    """Return the lower or the upper half of two vectors, one entry of each in turn."""
    half = PANEL // 2
    places = [half * upper + i // 2 + PANEL * (i % 2) for i in range(PANEL)]
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), PANEL), places))


def _points(context: Any, builder: Any, signature: Any, arguments: Any, number: int) -> Any:
    """Return a pointer to PANEL numbers of the array among the arguments; its place is the argument after it."""
    _prefer_long_vectors(builder.function)
    kind = signature.args[number]
    data = context.make_array(kind)(context, builder, arguments[number]).data
    vector = ir.VectorType(context.get_data_type(kind.dtype), PANEL)
    return builder.bitcast(builder.gep(data, [arguments[number + 1]]), vector.as_pointer())


def _vector_at(builder: Any, data: Any, place: Any, vector: Any) -> Any:
    """Load a vector; arrays are aligned to their elements only."""
    pointer = builder.bitcast(builder.gep(data, [place]), vector.as_pointer())
    return builder.load(pointer, align=4)


def everywhere(builder: Any, value: Any, vector: Any) -> Any:
    """Return a vector that holds one value in every lane."""
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(
        first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
    )


def _prefer_long_vectors(function: Any) -> None:
    """Let the compiler use 512-bit registers, which it avoids by default; other processors ignore the attribute."""
    # llvmlite lets only attributes pass that it knows; this one is a plain string to LLVM.
    set.add(function.attributes, f'"prefer-vector-width"="{VECTOR_BYTES * 8}"')
