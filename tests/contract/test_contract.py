"""The laws that every kernel obeys: one test a (kernel, law), with its seeds and sizes inside.

An entry's program is compiled once for all laws at the usual sizes, and must not be traced again.
"""

import functools
import importlib
import pathlib
import types

import chex
import contract_registry as registry
import jax
import numpy as np
import pytest
import rounding
from contract_entry import FEW

FUNCTIONS = (types.FunctionType, jax.custom_vjp)
KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
PADDING = 9


def a_kernel(entry):
    return entry.kernel


def a_file(entry):
    return entry.kernel.partition(".")[0]


def entries(chosen=lambda entry: True, *, one=a_kernel):
    """One parameter an entry that has the law; slow where an entry of the same kernel, or file, comes before it."""
    chosen = [entry for entry in registry.ENTRIES if chosen(entry)]
    first = {one(entry): entry for entry in reversed(chosen)}.values()
    further = pytest.mark.slow("grid")
    marked = [pytest.param(entry, marks=[] if entry in first else further) for entry in chosen]
    return pytest.mark.parametrize("entry", marked, ids=lambda entry: entry.id)


every_entry = entries()
one_of_each_file = entries(one=a_file)


def arrays_of(entry, seed=0, n=registry.NUM_CALIBRATION, m=registry.NUM_TEST, dtype=np.float32):
    """Floats in the given type; `make` rounds what must be the same number in every type."""
    arrays = entry.make(np.random.default_rng(seed), n, m)
    dtype = dtype if entry.takes_double else np.float32
    return {name: x.astype(dtype) if x.dtype.kind == "f" else x for name, x in arrays.items()}


@functools.cache
def program(entry, n, m, dtype):
    """The kernel compiled for these sizes."""
    chex.clear_trace_counter()  # it counts by the text of a function, which all programs share

    @jax.jit
    @chex.assert_max_traces(n=1)
    def call(**arrays):
        return entry.call(**arrays)

    return call


def run(entry, arrays, n=registry.NUM_CALIBRATION, m=registry.NUM_TEST, dtype=np.float32):
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        return jax.tree.map(np.asarray, program(entry, n, m, dtype)(**registry.to_device(arrays)))


def assert_same(found, exact, entry, arrays, *, dtype=np.float32, both=False):
    """Counts and decisions to the bit, floats within the entry's roundings; twice as many where both are rounded."""
    found, exact = jax.tree.leaves(found), jax.tree.leaves(exact)
    assert len(found) == len(exact)
    roundings = (1 + both) * entry.roundings
    for leaf, wanted in zip(found, exact, strict=True):
        if leaf.dtype.kind != "f" or not roundings:
            np.testing.assert_array_equal(leaf, wanted)
            continue
        wanted = np.asarray(wanted, np.float64)
        # numbers below the smallest normal one have fewer digits, and references in float64 are not exact themselves
        beside = np.finfo(dtype).tiny if dtype == np.float32 else 1e-12 * np.maximum(np.abs(wanted), 1)
        scale = entry.scale(wanted, arrays) + beside / rounding.gamma(roundings, dtype)
        with np.errstate(invalid="ignore"):  # the difference of two infinities
            rounding.assert_close(leaf, wanted, roundings=roundings, dtype=dtype, scale=scale)


def assert_moved(found, before, entry, arrays):
    """To the bit, but for sums: those depend on the order of their terms."""
    if entry.roundings <= FEW:
        chex.assert_trees_all_equal(found, before)
    else:
        assert_same(found, before, entry, arrays, both=True)


def moved(arrays, names, order):
    return {name: x[order] if name in names else x for name, x in arrays.items()}


def first(tree, m, after=registry.NUM_TEST):
    """Of the leaves an item, the first m."""
    return jax.tree.map(lambda x: x[:m] if np.shape(x)[:1] == (after,) else x, tree)


def test_every_public_kernel_is_registered():
    registered = {entry.kernel for entry in registry.ENTRIES} | set(registry.ELSEWHERE)
    public = set()
    for file in sorted(KERNELS.glob("*.py")):
        module = importlib.import_module(f"tdd.kernels.{file.stem}")
        there = {name: getattr(module, name) for name in module.__all__}
        public |= {f"{file.stem}.{name}" for name, it in there.items() if isinstance(it, FUNCTIONS)}
    assert public == registered


@every_entry
def test_reference(entry):
    """Over six seeds, with one trace."""
    for seed in range(6):
        arrays = arrays_of(entry, seed)
        assert_same(run(entry, arrays), entry.reference(**arrays), entry, arrays)


@one_of_each_file
@pytest.mark.parametrize(
    "sizes", [(0, 1), *(pytest.param(sizes, marks=pytest.mark.slow("grid")) for sizes in ((1, 0), (1, 1), (2, 2)))]
)
def test_smallest_sizes(entry, sizes):
    arrays = arrays_of(entry, 3, *sizes)
    assert_same(run(entry, arrays, *sizes), entry.reference(**arrays), entry, arrays)


@every_entry
@pytest.mark.slow("eager")
def test_jit_equals_eager(entry):
    arrays = arrays_of(entry, 1)
    eager = jax.tree.map(np.asarray, entry.call(**registry.to_device(arrays)))
    assert_same(eager, run(entry, arrays), entry, arrays, both=True)


@one_of_each_file
def test_vmap_equals_loop(entry):
    many = [arrays_of(entry, seed) for seed in range(4)]
    stacked = {name: np.stack([a[name] for a in many]) for name in many[0]}
    batched = jax.jit(jax.vmap(lambda arrays: entry.call(**arrays)))(stacked)
    for i, arrays in enumerate(many):
        alone = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), batched)
        assert_same(alone, run(entry, arrays), entry, arrays, both=True)


@every_entry
def test_permutation_of_the_items_permutes_the_result(entry):
    arrays = arrays_of(entry, 2)
    order = np.random.default_rng(0).permutation(registry.NUM_TEST)
    expected = jax.tree.map(lambda x: x[order] if x.shape[:1] == order.shape else x, run(entry, arrays))
    permuted = moved(arrays, entry.items, order)
    assert_moved(run(entry, permuted), expected, entry, permuted)


@entries(lambda entry: entry.calibration)
def test_order_of_the_calibration_does_not_matter(entry):
    arrays = arrays_of(entry, 2)
    order = np.random.default_rng(1).permutation(registry.NUM_CALIBRATION)
    assert_moved(run(entry, moved(arrays, entry.calibration, order)), run(entry, arrays), entry, arrays)


@entries(lambda entry: entry.masked)
def test_masked_padding_changes_nothing(entry):
    """The last items look real and are masked out: what comes out is the reference without them."""
    arrays = arrays_of(entry, 4)
    kept = dict(arrays)
    for names, mask in ((entry.items, "mask"), (entry.calibration, "calibration_mask")):
        if mask in arrays:
            arrays[mask] = arrays[mask] & (np.arange(len(arrays[mask])) < len(arrays[mask]) - PADDING)
            kept |= {name: arrays[name][:-PADDING] for name in names}
    found = first(run(entry, arrays), registry.NUM_TEST - PADDING)
    assert_same(found, entry.reference(**kept), entry, kept)


@every_entry
def test_float_type_is_kept(entry):
    """Single precision and 32-bit integers by default; as traced, double where the input is double."""
    single = run(entry, arrays_of(entry, 5))
    with jax.enable_x64(True):
        double = jax.eval_shape(lambda a: entry.call(**a), arrays_of(entry, 5, dtype=np.float64))
    for found, floats in ((single, np.float32), (double, np.float32 if entry.always_single else np.float64)):
        for leaf in jax.tree.leaves(found):
            assert leaf.dtype in (floats, np.int32, np.bool_)


@every_entry
@pytest.mark.slow("grid")
def test_double_precision(entry):
    """The same decisions in both precisions, and as many digits as the roundings leave."""
    arrays = arrays_of(entry, 5, dtype=np.float64)
    with jax.enable_x64(True):
        found = run(entry, arrays, dtype=np.float64)
    dtype = np.float32 if entry.always_single else np.float64
    assert_same(found, entry.reference(**arrays), entry, arrays, dtype=dtype, both=True)


def floats_of(entry):
    return [name for name, x in arrays_of(entry, 5).items() if x.dtype.kind == "f"]


@entries(lambda entry: len(floats_of(entry)) > 1 and not entry.kernel.startswith("grad_norm"))
@pytest.mark.slow("grid")
def test_mixed_precision(entry):
    """Arrays in single precision beside others in double give what all of them give in double.

    Cotangents, which the entries of gradients have, are of the type of the outputs.
    """
    arrays, floats = arrays_of(entry, 5), floats_of(entry)
    with jax.enable_x64(True):
        double = registry.to_device({n: x.astype(np.float64) if n in floats else x for n, x in arrays.items()})
        compiled = jax.jit(lambda arrays: entry.call(**arrays))
        wanted = jax.tree.leaves(compiled(double))
        for single in (floats[::2], floats[1::2]):
            mixed = double | {name: double[name].astype(np.float32) for name in single}
            for found, leaf in zip(jax.tree.leaves(compiled(mixed)), wanted, strict=True):
                if leaf.dtype.kind != "f":
                    np.testing.assert_array_equal(found, leaf)
                    continue
                scale = np.max(np.abs(leaf), initial=1, where=np.isfinite(leaf))
                atol = (1 + 2 * entry.roundings) * float(np.finfo(np.float32).eps) * scale
                np.testing.assert_allclose(found, leaf, rtol=1e-5, atol=atol)
