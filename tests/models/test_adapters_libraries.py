"""linen, nnx and Equinox models: audited like the plain function that has their weights."""

import functools

import adapted_models as models
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scored_models import random_texts
from word_tokenizer import word_tokenizer

import tdd
from tdd.scoring.token_stats import token_stats

TEXTS = random_texts(30, seed=8, shortest=6, longest=20)
SCORES = ("loss", "min_k_plus_plus")


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(models.VOCABULARY)


@pytest.fixture(scope="module", params=models.LIBRARIES)
def adapted(request):
    return models.adapted(request.param)


@functools.cache
def reference_audit():
    return audit(*models.reference(), word_tokenizer(models.VOCABULARY))


def audit(lm, params, tokenizer):
    candidates, calibration = TEXTS[:10], TEXTS[10:]
    return tdd.run_audit(
        (lm, params, tokenizer),
        candidates,
        calibration,
        alpha=0.3,
        score="loss",
        extra_scores=("min_k_plus_plus",),
        seed=0,
    )


def batch(rows=3, length=9, seed=0):
    return np.random.default_rng(seed).integers(0, models.VOCABULARY, (rows, length)).astype(np.int32)


def test_audit(adapted, tokenizer):
    """The same scores as the plain function's, and so the same decisions."""
    found, expected = audit(*adapted, tokenizer), reference_audit()
    for part, reference in ((found.items, expected.items), (found.calibration, expected.calibration)):
        for name in ("loss", "min_k_plus_plus"):
            np.testing.assert_allclose(part[name], reference[name], rtol=1e-5)
    everything = np.sort(np.concatenate([expected.items["loss"], expected.calibration["loss"]]))
    assert np.diff(everything).min() > 2e-5 * everything.max()  # no rank hangs on a rounding
    for column in ("p_value", "selected"):
        np.testing.assert_array_equal(found.items[column], expected.items[column])


def test_logits_are_causal(adapted):
    lm, params = adapted
    assert jax.eval_shape(lm.logits, params, batch()).dtype == jnp.float32
    tdd.check_causal(lm, params, batch())


def test_weights_are_arguments(adapted):
    """No array beyond a few positions is a constant of the program; every weight matrix has 256 numbers or more."""
    lm, params = adapted
    traced = jax.make_jaxpr(lm.logits)(params, batch())
    assert sum(np.size(constant) for constant in traced.consts) < 64
    assert sum(np.size(leaf) for leaf in jax.tree.leaves(params)) > 2000


@pytest.mark.parametrize("library", models.LIBRARIES)
def test_adapting_again_compiles_nothing(library):
    traces = []

    @functools.partial(jax.jit, static_argnames="lm")
    def logits(lm, params, tokens):
        traces.append(1)
        return lm.logits(params, tokens)

    for _ in range(2):
        lm, params = models.adapted(library)
        logits(lm, params, batch())
    assert len(traces) == 1
    other = models.adapted(library, soft_cap=3.0, **models.fast_path(library))[0]
    assert other != lm


def encode(model, tokens):
    return model.encode(tokens) if "Linen" not in type(model).__name__ else model.encode(tokens, True)


FORMS = [*((library, "name") for library in models.LIBRARIES), ("linen", encode), ("nnx", encode)]


@pytest.mark.parametrize(("library", "form"), FORMS)
def test_the_fast_path(library, form):
    """Hidden states times readout are the reference's logits."""
    options = models.fast_path(library) | ({} if form == "name" else {"hidden": form})
    lm, params = models.adapted(library, **options)
    tdd.check_causal(lm, params, batch())
    expected = models.reference_logits(models.weights(), batch())
    found = jax.jit(lambda params, tokens: lm.hidden(params, tokens) @ lm.readout(params).T)(params, batch())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_statistics_of_the_fast_path():
    compute, mask = jax.jit(token_stats, static_argnums=0), np.ones((4, 16), bool)
    found = compute(*models.adapted("linen", **models.fast_path("linen")), batch(4, 16), mask)
    expected = compute(*models.reference(), batch(4, 16), mask)
    for name in ("log_prob", "sigma"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("options", "built"), [(models.fast_path("linen"), False), ({}, True)])
def test_logits_of_a_batch_are_built_without_the_fast_path_only(options, built):
    lm, params = models.adapted("linen", **options)
    program = jax.make_jaxpr(lambda p, t, m: token_stats(lm, p, t, m))(params, batch(4, 16), np.ones((4, 16), bool))
    assert ("4,16,300" in str(program)) is built


def loss(params, lm, tokens, scored):
    log_p = jax.nn.log_softmax(lm.logits(params, tokens[None])[0, :-1])
    return -jnp.where(scored[1:], jnp.take_along_axis(log_p, tokens[1:, None], -1)[:, 0], 0.0).sum()


@functools.cache
def reference_norms():
    """Norm of each text's gradient, one plain `jax.grad` after another over the reference's weights."""
    lm, params = models.reference()
    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    found = [jax.tree.leaves(gradient(params, lm, *row)) for row in zip(*gradient_batch(), strict=True)]
    return np.sqrt([sum(np.square(leaf, dtype=np.float64).sum() for leaf in leaves) for leaves in found])


def gradient_batch():
    return batch(3, 9), (np.arange(9) < np.array([[9], [4], [7]])) & (np.arange(9) > 0)


def check_gradient_norms(lm, params):
    """Statistics, counters and generators, which are parameters of programs too, add nothing."""
    tokens, mask = gradient_batch()
    found = jax.jit(tdd.grad_norms, static_argnums=0)(lm, params, tokens, mask)
    np.testing.assert_allclose(found.total, reference_norms(), rtol=2e-5)
    assert np.isnan(found.input_embedding).all()


def test_gradient_norms(adapted):
    check_gradient_norms(*adapted)


@pytest.mark.parametrize("library", models.LIBRARIES)
def test_gradient_norms_of_the_fast_path(library):
    check_gradient_norms(*models.adapted(library, **models.fast_path(library)))


def test_rng_and_training_state():
    model = models.nnx_model()
    lm, params = tdd.from_nnx(model, vocab_size=models.VOCABULARY)
    assert not model.drop.deterministic  # the caller's model is as it was
    assert not any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in jax.tree.leaves(params))
    assert set(params) == {"params", "state"}
    other, _ = tdd.from_nnx(models.nnx_model(seed=1), vocab_size=models.VOCABULARY)
    assert other == lm
    assert hash(other) == hash(lm)
    with pytest.raises(tdd.InputError, match=r"params\['params'\] has no embed.embedding; pass what"):
        lm.logits({**params, "params": params["state"]}, batch())
