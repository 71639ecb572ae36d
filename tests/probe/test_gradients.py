"""Per-example gradient norms of any loss: against plain gradients, optax's own, and `tdd.grad_norms`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import tdd
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.probe.gradients import example_grad_norms, gradient_norm, quantiles, record_grad_norms
from tdd.scoring import eager
from tdd.validate import InputError

SPEC = DecoderSpec.gpt2(vocab_size=97, width=16, num_layers=2, num_heads=2, max_length=16)
LM = language_model(SPEC)
RNG = np.random.default_rng(0)
TOKENS = jnp.asarray(RNG.integers(0, 97, (7, 12)), jnp.int32)
MASK = jnp.asarray(np.arange(12)[None] < RNG.integers(4, 13, (7, 1)))


@pytest.fixture(scope="module")
def params():
    return jax.jit(init_params, static_argnums=0)(SPEC, jax.random.key(1))


def text_loss(params, tokens, mask):
    """The sum over one text [T], written without anything of the project but the model."""
    log_p = jax.nn.log_softmax(LM.logits(params, tokens[None])[0].astype(jnp.float32))
    found = jnp.take_along_axis(log_p[:-1], tokens[1:, None], axis=1)[:, 0]
    return -jnp.where(mask[1:], found, 0).sum()


def regression(w, x, y):
    return 0.5 * jnp.square(x @ w["a"] + w["b"] - y)


W = {"a": jnp.array([0.5, -1.0, 2.0]), "b": jnp.float32(0.25)}
X, Y = jnp.asarray(RNG.normal(size=(10, 3)), jnp.float32), jnp.asarray(RNG.normal(size=10), jnp.float32)


def test_of_a_regression_by_hand():
    residual = np.asarray(X @ W["a"] + W["b"] - Y)
    expected = np.abs(residual) * np.sqrt(np.square(X).sum(1) + 1)
    np.testing.assert_allclose(example_grad_norms(regression, W, X, Y), expected, rtol=1e-6)


@pytest.mark.parametrize("microbatch", [1, 3, 100])
@pytest.mark.slow("long")
def test_of_a_language_model_as_tdd_grad_norms(params, microbatch):
    norms = jax.jit(lambda params: example_grad_norms(text_loss, params, TOKENS, MASK, microbatch=microbatch))
    found = norms(params)
    expected = tdd.grad_norms(LM, params, TOKENS, MASK).total
    assert found.shape == (7,)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("keep_batch_dim", [False, True])
def test_a_loss_of_optax_microbatching_is_taken_as_it_is(keep_batch_dim):
    def loss(w, x, y):
        assert x.ndim == 1 + keep_batch_dim
        return regression(w, x, y).mean()

    micro = optax.microbatching.micro_grad(
        loss, batch_argnums=(1, 2), keep_batch_dim=keep_batch_dim, microbatch_size=5, metrics_fn=gradient_norm
    )
    found = example_grad_norms(loss, W, X, Y, microbatch=3, keep_batch_dim=keep_batch_dim)
    np.testing.assert_allclose(found, micro(W, X, Y)[1].metrics, rtol=1e-6)


def test_trees_of_examples_and_integer_parameters():
    params = {"w": W, "step": jnp.int32(3)}
    found = example_grad_norms(lambda p, batch: regression(p["w"], batch["x"], batch["y"]), params, {"x": X, "y": Y})
    np.testing.assert_array_equal(found, example_grad_norms(regression, W, X, Y))


def test_half_precision_gradients_are_summed_in_float32():
    ones = jnp.ones(5000, jnp.bfloat16)
    np.testing.assert_allclose(gradient_norm({"w": ones}), np.sqrt(5000), rtol=1e-6)
    assert gradient_norm(jnp.array([3 + 4j])) == 5
    assert gradient_norm({}) == 0


@pytest.mark.parametrize("count", [0, 1])
def test_edge_sizes(count):
    assert example_grad_norms(regression, W, X[:count], Y[:count], microbatch=4).shape == (count,)


def test_under_jit_traces_once_and_gives_the_same():
    traces = []

    def loss(w, x, y):
        traces.append(x.shape)
        return regression(w, x, y)

    compiled = jax.jit(lambda w, x, y: example_grad_norms(loss, w, x, y, microbatch=4))
    first = compiled(W, X, Y)
    count = len(traces)
    compiled(jax.tree.map(lambda leaf: leaf + 1, W), X, Y)
    assert len(traces) == count
    np.testing.assert_allclose(first, example_grad_norms(regression, W, X, Y), rtol=1e-6)


def test_memory_is_that_of_a_microbatch():
    """64 examples, 2**18 parameters: 64 gradients would be 64 MiB."""
    weights, examples = jnp.zeros((512, 512)), jnp.ones((64, 512))

    def loss(w, x):
        return jnp.tanh(x @ w).sum()

    def temporaries(fun):
        return jax.jit(fun).lower(weights, examples).compile().memory_analysis().temp_size_in_bytes

    gradient = 4 * 512 * 512
    assert temporaries(lambda w, x: example_grad_norms(loss, w, x)) < 2.5 * gradient
    assert temporaries(lambda w, x: example_grad_norms(loss, w, x, microbatch=4)) < 2.5 * 4 * gradient


def test_sharded_examples():
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    placed = jax.device_put((X, Y), NamedSharding(mesh, PartitionSpec("data")))
    found = jax.jit(lambda w, x, y: example_grad_norms(regression, w, x, y, microbatch=5))(W, *placed)
    np.testing.assert_allclose(found, example_grad_norms(regression, W, X, Y), rtol=1e-6)


def test_quantiles_leave_out_what_is_not_finite():
    norms = jnp.array([3.0, jnp.nan, 1.0, 2.0, jnp.inf, 5.0, 4.0])
    np.testing.assert_allclose(quantiles(norms), [1, 2, 3, 4, 5])
    assert np.isnan(quantiles(jnp.array([jnp.nan, jnp.inf]))).all()
    assert np.isnan(quantiles(jnp.zeros(0))).all()


def test_the_transformation_keeps_the_quantiles_of_the_step_that_trains():
    tx = optax.chain(record_grad_norms(), optax.clip_by_global_norm(1.0), optax.sgd(0.1))
    plain = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))
    micro = optax.microbatching.micro_grad(
        regression, batch_argnums=(1, 2), keep_batch_dim=False, microbatch_size=2, metrics_fn=gradient_norm
    )

    @jax.jit
    def step(w, state):
        gradients, out = micro(w, X, Y)
        updates, state = tx.update(gradients, state, w, grad_norms=out.metrics)
        return optax.apply_updates(w, updates), state

    state = tx.init(W)
    np.testing.assert_array_equal(optax.tree.get(state, "grad_norm_quantiles"), -1)
    moved, state = step(W, state)
    expected = np.quantile(example_grad_norms(regression, W, X, Y), [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(optax.tree.get(state, "grad_norm_quantiles"), expected, rtol=1e-5)
    updates, _ = plain.update(micro(W, X, Y)[0], plain.init(W), W)
    for one, other in zip(jax.tree.leaves(moved), jax.tree.leaves(optax.apply_updates(W, updates)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    _, kept = tx.update(W, state, W)  # a step without norms
    np.testing.assert_array_equal(
        optax.tree.get(kept, "grad_norm_quantiles"), optax.tree.get(state, "grad_norm_quantiles")
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: example_grad_norms(lambda w, x, y: x, W, X, Y), r"one real number an example, got shape \[3\]"),
        (lambda: example_grad_norms(lambda w, x, y: (w["b"], x), W, X, Y), "got tuple; sum or average"),
        (lambda: example_grad_norms(lambda w, x, y: jnp.argmax(x), W, X, Y), "dtype int"),
        (lambda: example_grad_norms(regression, W, X, Y[:4]), r"first axis, got shapes \[10, 3\], \[4\]"),
        (lambda: example_grad_norms(regression, W), "got shapes none"),
        (lambda: example_grad_norms(regression, W, X, Y, microbatch=0), "microbatch=0 must be"),
        (lambda: example_grad_norms(lambda w, x: x.sum(), {"n": 1}, X), "no floating-point array"),
        (lambda: record_grad_norms((0.5, 1.5)), r"levels=\(0.5, 1.5\) must be numbers between 0 and 1"),
        (lambda: record_grad_norms().update(W, record_grad_norms().init(W), grad_norms=X), r"grad_norms must be \[B\]"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_call_outside_jit_compiles_once_for_each_compiled_loss():
    compiled = jax.jit(regression)
    example_grad_norms(compiled, W, X, Y, microbatch=4)
    before = eager._program.cache_info()
    doubled = jax.tree.map(lambda leaf: 2 * leaf, W)
    found = example_grad_norms(compiled, doubled, X, Y, microbatch=4)
    after = eager._program.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)
    np.testing.assert_allclose(found, example_grad_norms(regression, doubled, X, Y), rtol=1e-6)


def test_a_loss_that_cannot_be_hashed_is_taken():
    @dataclasses.dataclass
    class Loss:
        factor: float

        def __call__(self, w, x, y):
            return self.factor * regression(w, x, y)

    found = example_grad_norms(Loss(2.0), W, X, Y)
    np.testing.assert_allclose(found, 2 * example_grad_norms(regression, W, X, Y), rtol=1e-6)
