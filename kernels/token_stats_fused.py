"""`token_stats` as one Pallas kernel: a logit is made in fast memory, added to every sum, and never written out.

`token_stats` is the definition; its form for XLA writes tiles of logits and reads them back for every reduction. Here
the vocabulary passes once. Sums over the columns so far are kept on the scale of the largest logit so far (Milakov and
Gimelshein 2018, arXiv:1805.02867) and, as there, the maxima out of them: with m the largest logit so far, d = z - m and
n = #{d = 0}, over d < 0 r = sum e^d, a = sum e^d d and b = sum e^d d^2. A larger logit m' moves them by c = m - m':

    n' = 0    r' = e^c (r + n)    a' = e^c (a + c (r + n))    b' = e^c (b + 2 c a + c^2 (r + n)),

whose terms have one sign. At the end s = r + n, mu = a / s - ln s and sigma^2 = b / s - (a / s)^2, with a relative
error of the order of 1e-7 (1 + (a / s)^2 / sigma^2). Sums over parts of the vocabulary are put together in the same
way: those of a TPU's lanes, which do not meet before the end, and those of GPU programs that share a row's columns.

M, whose terms need the sum over the vocabulary first, takes a second pass: it is not among these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

__all__ = ["FUSED", "fused_token_stats", "takes"]

FUSED = ("log_prob", "mu", "sigma", "renyi_half", "renyi_two", "renyi_inf", "rank")
"""The statistics that one pass gives, of `TokenStatistics`."""

_LEAST = -1e30
"""The logit of a column that does not exist: finite, so that its terms are 0 and not NaN."""

_LANES, _SUBLANES = 128, 8
_TPU_ROWS, _TPU_COLUMNS, _TPU_PART = 1024, 2048, 256
_TPU_BYTES = 2**22  # of a block of the hidden states, or of the readout; six of them are in fast memory
_TPU_WIDEST = 2**14  # bytes of a row
_TPU_MEMORY = 48 * 2**20
_GPU_ROWS, _GPU_COLUMNS, _GPU_DEPTH = 128, 256, 64
_GPU_PROGRAMS = 264  # twice the multiprocessors of a Hopper GPU


class _Sums(NamedTuple):
    """Sums over the columns so far, float32."""

    top: Any  # m
    num_top: Any  # n
    rest: Any  # r
    moment: Any  # a
    square: Any  # b
    half: Any  # sum e^(d/2) over d < 0
    two: Any  # sum e^(2d) over d < 0
    rank: Any  # logits above the target's


def takes(platform: str, vocab_size: int, width: int, dtype: Any) -> bool:
    """Whether a kernel for the platform ("gpu", "tpu") takes a readout [V, D] of this type.

    NVIDIA GPUs have matrix units for 16 bits only; a TPU multiplies float32 in parts.
    """
    if platform == "tpu":
        fits = width % _LANES == 0 and width * jnp.dtype(dtype).itemsize <= _TPU_WIDEST
        return fits and jnp.dtype(dtype) in (jnp.bfloat16, jnp.float32)
    narrow = jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16)
    return width % _GPU_DEPTH == 0 and vocab_size >= _GPU_COLUMNS and narrow


def fused_token_stats(
    hidden: jax.Array,
    readout: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    *,
    platform: str,
    soft_cap: float | None = None,
    wanted: Sequence[str] = FUSED,
    interpret: bool = False,
) -> dict[str, jax.Array]:
    """Statistics of p(. | context) and of the target token, by name; arguments as `token_stats`, and

    Args:
      platform: The kernel's form: "gpu" (Triton, columns in a loop) or "tpu" (Mosaic, columns along the grid). Static.
      wanted: Names among `FUSED`. Static.
      interpret: Run the kernel's operations one by one, on any platform: for tests. Static.

    Returns: an array [N] for each name of `wanted`, 0 outside `mask`.
    Cost: 2 S D V flop for S = sum(mask) rounded up to a block of rows; the readout is read once a block of rows.
    Temporary memory of the S hidden states, their targets' rows of the readout, and the sums.
    """
    num_rows = hidden.shape[0]
    vocab_size, width = readout.shape
    form, rows = _mosaic(vocab_size, width, readout.dtype) if platform == "tpu" else (_by_triton, _GPU_ROWS)
    padded = pl.cdiv(num_rows, rows) * rows
    (index,) = jnp.nonzero(mask, size=padded, fill_value=num_rows)
    chosen = jnp.take(targets, index, mode="clip")
    arrays = (
        mask.sum(dtype=jnp.int32)[None],
        jnp.take(hidden, index, axis=0, mode="clip").astype(readout.dtype),
        jnp.take(readout, chosen, axis=0, mode="clip"),
        chosen,
        readout,
    )
    cap = (lambda z: z) if soft_cap is None else (lambda z: soft_cap * jnp.tanh(z / soft_cap))
    parts, target = form(*arrays, cap=cap, wanted=frozenset(wanted), interpret=interpret)
    top = parts.top.max(-1)
    sums = _Sums(*(field.sum(-1) for field in _moved(parts, top[:, None])))._replace(top=top)
    found = _statistics(sums, target)
    return {name: jnp.zeros(num_rows, found[name].dtype).at[index].set(found[name], mode="drop") for name in wanted}


def _by_triton(
    count: jax.Array, *arrays: jax.Array, cap: Callable[[Any], Any], wanted: frozenset[str], interpret: bool
) -> tuple[_Sums, jax.Array]:
    """Sums [N, splits] and targets' logits [N]: a program takes a block of rows and a share of the columns."""
    from jax.experimental.pallas import triton

    (num_rows, width), (vocab_size, _) = arrays[0].shape, arrays[-1].shape
    num_blocks, num_steps = num_rows // _GPU_ROWS, pl.cdiv(vocab_size, _GPU_COLUMNS)
    splits = min(max(_GPU_PROGRAMS // num_blocks, 1), num_steps)
    share = pl.cdiv(num_steps, splits)

    def kernel(count: Any, hidden: Any, of_targets: Any, targets: Any, readout: Any, *outputs: Any) -> None:
        i, s = pl.program_id(0), pl.program_id(1)

        def product(rows: Callable[[Any], Any], columns: int) -> Any:
            def step(k: Any, z: Any) -> Any:
                at = pl.ds(pl.multiple_of(k * _GPU_DEPTH, _GPU_DEPTH), _GPU_DEPTH)
                return z + _product(hidden[:, at], rows(at))

            start = jnp.zeros((_GPU_ROWS, columns), jnp.float32)
            return cap(lax.fori_loop(0, width // _GPU_DEPTH, step, start))

        target = _diagonal(product(lambda at: of_targets[:, at], _GPU_ROWS))[:, None]

        def step(j: Any, sums: _Sums) -> _Sums:
            first = jnp.minimum(j * _GPU_COLUMNS, vocab_size - _GPU_COLUMNS)  # the last overlaps the one before
            z = product(lambda at: readout[pl.ds(first, _GPU_COLUMNS), at], _GPU_COLUMNS)
            column = first + lax.broadcasted_iota(jnp.int32, z.shape, 1)
            z = jnp.where(column >= j * _GPU_COLUMNS, z, _LEAST)
            now = _moved(sums, jnp.maximum(sums.top, z.max(1)))
            terms = _terms(z, now.top[:, None], target, column == targets[...][:, None], wanted)
            return _Sums(*(a if b is None else a + b.sum(1) for a, b in zip(now, terms, strict=True)))

        last = jnp.where(i * _GPU_ROWS < count[0], jnp.minimum((s + 1) * share, num_steps), 0)
        zero = jnp.zeros(_GPU_ROWS, jnp.float32)
        sums = lax.fori_loop(s * share, last, step, _Sums(zero + _LEAST, *[zero] * (len(_Sums._fields) - 1)))
        for ref, value in zip(outputs, (*sums, target[:, 0]), strict=True):
            ref[...] = value

    row = pl.BlockSpec((_GPU_ROWS,), lambda i, _: (i,))
    block = pl.BlockSpec((_GPU_ROWS, width), lambda i, _: (i, 0))
    part = pl.BlockSpec((None, _GPU_ROWS), lambda i, s: (s, i))
    num_outputs = len(_Sums._fields) + 1
    *sums, target = pl.pallas_call(
        kernel,
        grid=(num_blocks, splits),
        in_specs=[
            pl.BlockSpec((1,), lambda *_: (0,)),
            block,
            block,
            row,
            pl.BlockSpec((vocab_size, width), lambda *_: (0, 0)),
        ],
        out_specs=[part] * num_outputs,
        out_shape=[jax.ShapeDtypeStruct((splits, num_rows), jnp.float32)] * num_outputs,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=8, num_stages=3),
        interpret=interpret,
        name="fused_token_stats",
    )(count, *arrays)
    return _Sums(*(field.T for field in sums)), target[0]


def _mosaic(vocab_size: int, width: int, dtype: Any) -> tuple[Callable[..., Any], int]:
    """The form for TPUs, and the rows of its blocks."""
    bytes_of_row = width * jnp.dtype(dtype).itemsize
    rows = min(_TPU_ROWS, max(_TPU_BYTES // bytes_of_row // _TPU_PART * _TPU_PART, _TPU_PART))
    columns = min(_TPU_COLUMNS, max(_TPU_BYTES // bytes_of_row // _LANES * _LANES, _LANES))
    columns = min(columns, pl.cdiv(vocab_size, _LANES) * _LANES)
    return functools.partial(_by_mosaic, rows=rows, columns=columns), rows


def _by_mosaic(
    count: jax.Array,
    hidden: jax.Array,
    of_targets: jax.Array,
    targets: jax.Array,
    readout: jax.Array,
    *,
    rows: int,
    columns: int,
    cap: Callable[[Any], Any],
    wanted: frozenset[str],
    interpret: bool,
) -> tuple[_Sums, jax.Array]:
    """Sums [N, lanes] and targets' logits [N]: the columns follow each other along the grid."""
    from jax.experimental.pallas import tpu

    (num_rows, width), vocab_size = hidden.shape, readout.shape[0]
    num_outputs = len(_Sums._fields) + 1

    def column_block(i: Any, j: Any, count: Any) -> tuple[Any, int]:
        return jnp.where(i * rows < count[0], j, 0), 0  # rows that are not scored fetch nothing

    def row_block(i: Any, *_: Any) -> tuple[Any, int]:
        return i, 0

    block = pl.BlockSpec((rows, width), row_block)
    *sums, target = pl.pallas_call(
        functools.partial(_mosaic_kernel, vocab_size=vocab_size, cap=cap, wanted=wanted),
        grid_spec=tpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(num_rows // rows, pl.cdiv(vocab_size, columns)),
            in_specs=[
                block,
                block,
                pl.BlockSpec((rows, 1), row_block),
                pl.BlockSpec((columns, width), column_block),
            ],
            out_specs=[pl.BlockSpec((rows, _LANES), row_block)] * num_outputs,
            scratch_shapes=[tpu.VMEM((_TPU_PART, columns), jnp.float32)],
        ),
        out_shape=[jax.ShapeDtypeStruct((num_rows, _LANES), jnp.float32)] * num_outputs,
        compiler_params=tpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=_TPU_MEMORY),
        interpret=interpret,
        name="fused_token_stats",
    )(count, hidden, of_targets, targets[:, None], readout)
    return _Sums(*sums), target[:, 0]


def _mosaic_kernel(
    count: Any,
    hidden: Any,
    of_targets: Any,
    targets: Any,
    readout: Any,
    *refs: Any,
    vocab_size: int,
    cap: Callable[[Any], Any],
    wanted: frozenset[str],
) -> None:
    """One block of columns, added to the sums of one block of rows, a register of 8 rows by 128 lanes at a time."""
    *sums, target, logits = refs
    rows, (part, columns) = hidden.shape[0], logits.shape
    i, j = pl.program_id(0), pl.program_id(1)

    def start(p: Any, _: None) -> None:
        at = pl.ds(pl.multiple_of(p * _LANES, _LANES), _LANES)
        for field, ref in zip(_Sums._fields, sums, strict=True):
            ref[at, :] = jnp.full((_LANES, _LANES), _LEAST if field == "top" else 0.0, jnp.float32)
        found = _diagonal(cap(_product(hidden[at, :], of_targets[at, :])))
        target[at, :] = jnp.broadcast_to(found[:, None], (_LANES, _LANES))

    def add(p: Any, _: None) -> None:
        first = pl.multiple_of(p * part, part)
        logits[...] = cap(_product(hidden[pl.ds(first, part), :], readout[...]))

        @pl.when(j == pl.num_programs(1) - 1)
        def _() -> None:
            column = j * columns + lax.broadcasted_iota(jnp.int32, logits.shape, 1)
            logits[...] = jnp.where(column < vocab_size, logits[...], _LEAST)

        lax.fori_loop(0, part // _SUBLANES, functools.partial(add_registers, first), None, unroll=2)

    def add_registers(first: Any, r: Any, _: None) -> None:
        inside = pl.ds(pl.multiple_of(r * _SUBLANES, _SUBLANES), _SUBLANES)
        at = pl.ds(pl.multiple_of(first + r * _SUBLANES, _SUBLANES), _SUBLANES)
        registers = [(inside, slice(k, k + _LANES)) for k in range(0, columns, _LANES)]
        before = _Sums(*(ref[at, :] for ref in sums))
        now = _moved(before, functools.reduce(jnp.maximum, [logits[one] for one in registers], before.top))
        place = targets[at, :] - j * columns - lax.broadcasted_iota(jnp.int32, (_SUBLANES, _LANES), 1)
        for k, one in enumerate(registers):
            terms = _terms(logits[one], now.top, target[at, :], place == k * _LANES, wanted)
            now = _Sums(*(a if b is None else a + b for a, b in zip(now, terms, strict=True)))
        for ref, value in zip(sums, now, strict=True):
            ref[at, :] = value

    @pl.when(i * rows < count[0])
    def _() -> None:
        pl.when(j == 0)(lambda: lax.fori_loop(0, rows // _LANES, start, None))
        lax.fori_loop(0, rows // part, add, None)


def _product(left: Any, right: Any) -> Any:
    """left right^T, summed in float32."""
    precision = lax.Precision.HIGHEST if left.dtype == jnp.float32 else None
    contracted = (((1,), (1,)), ((), ()))
    return lax.dot_general(left, right, contracted, precision=precision, preferred_element_type=jnp.float32)


def _diagonal(square: Any) -> Any:
    rows, columns = (lax.broadcasted_iota(jnp.int32, square.shape, axis) for axis in (0, 1))
    return jnp.where(rows == columns, square, 0.0).sum(1)


def _terms(z: Any, top: Any, target: Any, is_target: Any, wanted: frozenset[str]) -> _Sums:
    """What logits z <= top add to each sum; None to one that is not wanted."""
    d, is_top, half = z - top, z >= top, None  # NaN is not the top one, and stays NaN in the sums
    if "renyi_half" in wanted:
        half = jnp.where(is_top, 0.0, jnp.exp(0.5 * d))
    full = half * half if half is not None else jnp.where(is_top, 0.0, jnp.exp(d))
    moment = full * d
    return _Sums(
        top=None,
        num_top=jnp.where(is_top, 1.0, 0.0),
        rest=full,
        moment=moment if wanted & {"mu", "sigma"} else None,
        square=moment * d if "sigma" in wanted else None,
        half=half,
        two=full * full if "renyi_two" in wanted else None,
        # its own logit may differ in the last bit from that of the same product in another shape
        rank=jnp.where((z > target) & ~is_target, 1.0, 0.0) if "rank" in wanted else None,
    )


def _moved(sums: _Sums, top: Any) -> _Sums:
    """The sums on the scale of a logit at least as large as theirs."""
    c = sums.top - top
    f = jnp.exp(c)
    c = jnp.where(f > 0, c, 0.0)
    num_moved = jnp.where(sums.top < top, sums.num_top, 0.0)
    total = sums.rest + num_moved  # where c = 0 and none moved, c times the rest is 0
    return _Sums(
        top=jnp.broadcast_to(top, sums.top.shape),
        num_top=sums.num_top - num_moved,
        rest=f * total,
        moment=f * (sums.moment + c * total),
        square=f * (sums.square + c * (2 * sums.moment + c * total)),
        half=jnp.where(f > 0, jnp.exp(0.5 * c), 0.0) * (sums.half + num_moved),
        two=f * f * (sums.two + num_moved),
        rank=sums.rank,
    )


def _statistics(sums: _Sums, target: Any) -> dict[str, Any]:
    other = sums.rest + (sums.num_top - 1)
    log_sum, mean = jnp.log1p(other), sums.moment / (1 + other)
    return {
        "log_prob": jnp.minimum(target - sums.top, 0.0) - log_sum,
        "mu": mean - log_sum,
        "sigma": jnp.sqrt(jnp.maximum(sums.square / (1 + other) - mean * mean, 0.0)),
        "renyi_half": 2 * jnp.log1p(sums.half + (sums.num_top - 1)) - log_sum,
        "renyi_two": 2 * log_sum - jnp.log1p(sums.two + (sums.num_top - 1)),
        "renyi_inf": log_sum,
        "rank": sums.rank.astype(jnp.int32),
    }
