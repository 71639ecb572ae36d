"""The laws that every kernel obeys: one test a (kernel, law), with its seeds and sizes inside.

An entry's program is compiled once for all laws at the usual sizes.
"""

import functools
import importlib
import pathlib
import types

import contract_registry as registry
import jax
import jax.numpy as jnp
import numpy as np
import pytest

FUNCTIONS = (types.FunctionType, jax.custom_vjp)
KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
SMALLEST = [(1, 1), (0, 2)]
SMALL = [(1, 0), (2, 1)]


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


def arrays_of(entry, seed=0, n=registry.NUM_CALIBRATION, m=registry.NUM_TEST):
    return entry.make(np.random.default_rng(seed), n, m)


class Program:
    """A kernel under `jit`, and how often it was traced."""

    def __init__(self, entry):
        self.traces = 0
        self.compiled = jax.jit(self.call)
        self.kernel = entry.call

    def call(self, **arrays):
        self.traces += 1
        return self.kernel(**arrays)


@functools.cache
def program(entry_id):
    return Program(next(entry for entry in registry.ENTRIES if entry.id == entry_id))


def run(entry, arrays):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("raise"):
        return jax.tree.map(np.asarray, program(entry.id).compiled(**registry.to_device(arrays)))


def assert_same(got, expected, tolerance):
    got, expected = jax.tree.leaves(got), jax.tree.leaves(expected)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=tolerance, atol=tolerance)


def assert_equal(got, expected, entry):
    """Decisions and counts to the bit; floats to two units in the last place, or as the kernel's sums allow.

    What cancels in a sum may differ by two units in the last place of the largest: that depends on the processor.
    """
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        sums = entry.tolerance > 1e-6 and a.dtype.kind == "f"
        rounding = entry.tolerance if sums else 2.4e-7
        scale = np.abs(b, where=np.isfinite(b), out=np.zeros_like(b)).max(initial=0) if sums else 0
        np.testing.assert_allclose(a, b, rtol=rounding if a.dtype.kind == "f" else 0, atol=2.4e-7 * scale)


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
    before = program(entry.id).traces
    for seed in range(6):
        arrays = arrays_of(entry, seed)
        assert_same(run(entry, arrays), entry.reference(**arrays), entry.tolerance)
    assert program(entry.id).traces - before <= 1


@one_of_each_file
@pytest.mark.parametrize("sizes", [SMALLEST, pytest.param(SMALL, marks=pytest.mark.slow("grid"))], ids=["least", "few"])
def test_smallest_sizes(entry, sizes):
    for n, m in sizes:
        if n >= entry.min_calibration:
            arrays = arrays_of(entry, 3, n, m)
            assert_same(run(entry, arrays), entry.reference(**arrays), entry.tolerance)


@every_entry
@pytest.mark.slow("eager")
def test_jit_equals_eager(entry):
    arrays = arrays_of(entry, 1)
    assert_equal(entry.call(**registry.to_device(arrays)), run(entry, arrays), entry)


@one_of_each_file
def test_vmap_equals_loop(entry):
    many = [arrays_of(entry, seed) for seed in range(4)]
    stacked = {name: jnp.stack([a[name] for a in many]) for name in many[0]}
    batched = jax.jit(jax.vmap(lambda arrays: entry.call(**arrays)))(stacked)
    for i, arrays in enumerate(many):
        assert_equal(jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), batched), run(entry, arrays), entry)


@every_entry
def test_permutation_of_the_items_permutes_the_result(entry):
    arrays = arrays_of(entry, 2)
    order = np.random.default_rng(0).permutation(registry.NUM_TEST)
    moved = permuted(entry, arrays, entry.items, order)
    expected = jax.tree.map(lambda x: x[order] if x.shape[:1] == order.shape else x, run(entry, arrays))
    assert_same(run(entry, moved), expected, entry.tolerance if entry.tolerance > 1e-6 else 0)


@entries(lambda entry: entry.calibration)
def test_order_of_the_calibration_does_not_matter(entry):
    arrays = arrays_of(entry, 2)
    order = np.random.default_rng(1).permutation(registry.NUM_CALIBRATION)
    moved = permuted(entry, arrays, entry.calibration, order)
    assert_same(run(entry, moved), run(entry, arrays), entry.tolerance if entry.tolerance > 1e-6 else 0)


@entries(lambda entry: entry.masks, one=a_file)
def test_masked_padding_changes_nothing(entry):
    arrays = arrays_of(entry, 4)
    padded = dict(arrays)
    for names, mask_of in ((entry.items, registry.NUM_TEST), (entry.calibration, registry.NUM_CALIBRATION)):
        for name in names:
            mask = entry.masks.get(names[0])
            padded[name] = np.concatenate([arrays[name], arrays[name][:9]])  # real-looking values, masked out
            padded[mask] = np.concatenate([arrays.get(mask, np.ones(mask_of, bool)), np.zeros(9, bool)])
    keep = lambda x: x[: registry.NUM_TEST] if x.shape[:1] == (registry.NUM_TEST + 9,) else x  # noqa: E731
    assert_same(jax.tree.map(keep, run(entry, padded)), run(entry, arrays), 1e-6)


def in_double_precision(entry, arrays):
    return {k: v.astype(np.float64) if k in entry.float_inputs else v for k, v in arrays.items()}


@every_entry
def test_float_type_is_kept(entry):
    """As traced: single precision and 32-bit integers by default, double where the input is double."""
    arrays = arrays_of(entry, 5)
    for leaf in jax.tree.leaves(jax.eval_shape(program(entry.id).kernel, **registry.to_device(arrays))):
        assert leaf.dtype.itemsize <= 4
    with jax.enable_x64(True):
        wide = registry.to_device(in_double_precision(entry, arrays))
        out = jax.eval_shape(program(entry.id).kernel, **wide)
    for leaf in jax.tree.leaves(out):
        assert leaf.dtype in (np.float32 if entry.always_single else np.float64, np.int32, np.bool_)


@every_entry
@pytest.mark.slow("grid")
def test_double_precision(entry):
    """The same decisions in both precisions, and more digits where there are digits."""
    arrays = arrays_of(entry, 5)
    with jax.enable_x64(True):
        out = run(entry, in_double_precision(entry, arrays))
        expected = entry.reference(**arrays)
    assert_same(out, expected, entry.tolerance)


def permuted(entry, arrays, names, order):
    moved = dict(arrays)
    for name in {*names, *(entry.masks.get(name) for name in names)} & set(arrays):
        moved[name] = arrays[name][order]
    return moved
