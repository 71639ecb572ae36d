"""What a probe computes at one set of parameters: scores of `tdd.score`, decisions of `tdd.ptdi`, canaries, norms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapted_models import VOCABULARY, reference_hidden, reference_logits, weights
from probed import SMALL, small_probe, token_rows
from scored_models import random_texts, small_model
from word_tokenizer import word_tokenizer

import tdd
from tdd.probe.inputs import COMPUTED_SCORES, lay_out

RESULT_FIELDS = [field.name for field in dataclasses.fields(tdd.probe.ProbeResult)]


@pytest.mark.parametrize(("kind", "scores"), [("small", COMPUTED_SCORES), ("decoder", ("loss",))])
@pytest.mark.slow("long")
def test_scores_are_those_of_tdd_score(kind, scores):
    """Of texts of 2 to 40 tokens."""
    tokenizer, texts = word_tokenizer(VOCABULARY, bos=True), random_texts(45, longest=40)
    model = (SMALL, weights(), tokenizer) if kind == "small" else (*small_model(), tokenizer)
    expected = tdd.score(model, texts, scores, progress=False)
    for score in scores:
        probe = tdd.Probe(model[0], texts[:20], texts[20:], tokenizer=tokenizer, score=score, num_draws=29)
        found = probe.evaluate(model[1])
        np.testing.assert_allclose(found.suspect_scores, expected[score][:20], rtol=1e-5)
        np.testing.assert_allclose(found.reference_scores, expected[score][20:], rtol=1e-5)


@pytest.fixture(scope="module")
def everything():
    """A result with canaries and gradient norms, and their rows."""
    canaries, references = token_rows(5, 7), token_rows(11, 8)
    probe = small_probe(canaries=canaries, canary_reference=references, grad_norms=True)
    return canaries, references, probe.evaluate(weights())


@pytest.mark.slow("long")
def test_decisions_are_those_of_ptdi(everything):
    found = everything[2]
    scores = np.asarray(found.suspect_scores), np.asarray(found.reference_scores)
    assert [len(values) for values in scores] == [20, 24]
    np.testing.assert_allclose(np.concatenate(scores), losses(weights()), rtol=1e-5)
    expected = tdd.ptdi(scores[1], scores[0], alpha=0.05)
    for name in ("p_values", "adjusted", "selected", "proportion"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.num_flagged == np.sum(found.selected)


def test_memorised_suspects_are_flagged_and_others_are_not():
    """A model whose logits know the suspects by their first token."""
    rows = token_rows(80, longest=12, shortest=12, vocabulary=30)
    for number, row in enumerate(rows):
        row[0] = number < 10

    def logits(params, tokens):
        known = tokens[:, :1] == 1
        ahead = jnp.roll(tokens, -1, axis=1)
        noise = jnp.sin(tokens[..., None] * jnp.arange(30))
        return params * jnp.where(known[..., None], jax.nn.one_hot(ahead, 30), noise)

    probe = tdd.Probe(logits, rows[:20], rows[20:], num_draws=199, alpha=0.05)
    found = probe.evaluate(jnp.float32(3))
    assert found.selected[:10].all()
    assert found.num_flagged <= 12  # all ten and a false one or two


def test_logits_alone_give_what_hidden_states_and_readout_give():
    found = small_probe(reference_logits).evaluate(weights())
    np.testing.assert_allclose(np.append(found.suspect_scores, found.reference_scores), losses(weights()), rtol=1e-5)


@pytest.mark.slow("long")
def test_linen_and_nnx():
    from flax import linen, nnx

    class Module(linen.Module):
        @linen.compact
        def __call__(self, tokens):
            return linen.Dense(VOCABULARY)(linen.Embed(VOCABULARY, 16)(tokens))

    module = Module()
    variables = module.init(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))
    of_linen = small_probe(tdd.from_linen(module, vocab_size=VOCABULARY)).evaluate(variables)

    class Model(nnx.Module):
        def __init__(self):
            rngs = nnx.Rngs(0)
            self.embed, self.out = nnx.Embed(VOCABULARY, 16, rngs=rngs), nnx.Linear(16, VOCABULARY, rngs=rngs)

        def __call__(self, tokens):
            return self.out(self.embed(tokens))

    model = Model()
    inner = variables["params"]
    model.embed.embedding[...] = inner["Embed_0"]["embedding"]
    model.out.kernel[...], model.out.bias[...] = inner["Dense_0"]["kernel"], inner["Dense_0"]["bias"]
    of_nnx = small_probe((adapted := tdd.from_nnx(model, vocab_size=VOCABULARY))[0]).evaluate(adapted[1])
    graph, state = nnx.split(model)
    of_state = small_probe(lambda state, tokens: nnx.merge(graph, state)(tokens)).evaluate(state)
    for found in (of_nnx, of_state):
        np.testing.assert_allclose(found.suspect_scores, of_linen.suspect_scores, rtol=1e-6)


def test_parameters_in_bfloat16():
    half = {name: jnp.asarray(leaf, jnp.bfloat16) for name, leaf in weights().items()}
    found = small_probe().evaluate(half)
    assert {getattr(found, name).dtype for name in RESULT_FIELDS} == {np.dtype(t) for t in ("float32", "int32", "bool")}
    np.testing.assert_allclose(np.concatenate([found.suspect_scores, found.reference_scores]), losses(half), rtol=1e-5)
    assert found.canary_rank.shape == found.canary_exposure.shape == found.grad_norm_quantiles.shape == (0,)


def losses(params, rows=None):
    """Mean of -log p over all tokens but the first of rows of one length, in float64."""
    tokens = np.stack(token_rows(44) if rows is None else rows)
    hidden = np.asarray(jax.jit(reference_hidden)(params, tokens), np.float64)
    logits = hidden[:, :-1] @ np.asarray(params["head"], np.float64)
    target = np.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return (np.logaddexp.reduce(logits, -1) - target).mean(1)


def test_canaries(everything):
    """Rank, exposure and p-value by their definitions."""
    canaries, references, found = everything
    own, others = losses(weights(), canaries), losses(weights(), references)
    np.testing.assert_allclose(found.canary_scores, own, rtol=1e-5)
    rank = 1 + (others[None] <= own[:, None]).sum(1)
    assert len({*rank}) > 2
    assert found.canary_rank.tolist() == rank.tolist()
    np.testing.assert_allclose(found.canary_exposure, np.log2(12) - np.log2(rank), atol=1e-6)
    np.testing.assert_allclose(found.canary_p_values, rank / 12, rtol=1e-6)


def test_ties_and_missing_scores_count_against_a_canary():
    def logits(params, tokens):
        return jnp.where(tokens[:, :1] == 0, jnp.nan, 1.0)[..., None] * jnp.zeros((*tokens.shape, 9)) * params

    rows = token_rows(44, vocabulary=9)
    for row in rows:
        row[0] = 1 + row[0] % 8
    canaries, references = token_rows(3, 1, vocabulary=9), token_rows(4, 2, vocabulary=9)
    for row, first in zip([*canaries, *references], [0, 3, 4, 0, 2, 2, 2], strict=True):
        row[0] = first
    probe = tdd.Probe(
        logits, rows[:20], rows[20:], num_draws=29, alpha=0.1, canaries=canaries, canary_reference=references
    )
    found = probe.evaluate(jnp.float32(1))
    assert found.canary_rank.tolist() == [5, 5, 5]  # all tie at log 9, or have no score
    assert found.canary_exposure.tolist() == [0, 0, 0]
    assert found.canary_p_values.tolist() == [1, 1, 1]
    assert found.num_not_finite == 2


def test_gradient_norms_of_the_suspects(everything):
    tokens = np.stack(token_rows(44)[:20])
    norms = tdd.grad_norms(SMALL, weights(), tokens, np.ones(tokens.shape, bool)).total
    expected = np.quantile(np.asarray(norms), [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(everything[2].grad_norm_quantiles, expected, rtol=1e-5)


def test_roles_are_mixed_in_one_layout():
    """Every micro-batch of a bucket has suspects and references, and each row is found again where it was put."""
    rows = token_rows(400, shortest=10, longest=40)
    layout = lay_out(rows, budget=400, limit=64, seed=0)
    flat = np.concatenate([bucket.tokens.reshape(-1, bucket.tokens.shape[-1])[:, :10] for bucket in layout.buckets])
    np.testing.assert_array_equal(flat[layout.place], [row[:10] for row in rows])
    lengths = np.concatenate([bucket.lengths.reshape(-1) for bucket in layout.buckets])
    assert lengths[layout.place].tolist() == [len(row) for row in rows]
    assert (lengths > 0).sum() == 400
    owner = np.full(lengths.size, -1)
    owner[layout.place] = np.arange(400) < 200
    first = 0
    for bucket in layout.buckets:
        shape = bucket.lengths.shape
        inside = owner[first : first + bucket.lengths.size].reshape(shape)
        first += bucket.lengths.size
        assert bucket.tokens.shape[1] * bucket.tokens.shape[2] <= 400
        assert ((inside == 1).any(1) & (inside == 0).any(1)).mean() > 0.9
    # 2^-8 is the chance that ten rows of a micro-batch are all of one role; fewer than one in ten are


@pytest.mark.slow("long")
def test_what_a_text_scores_does_not_depend_on_the_others():
    rows, params = token_rows(50, shortest=5, longest=24), weights()
    one = tdd.Probe(SMALL, rows[:25], rows[25:], num_draws=29, token_budget=128, seed=0).evaluate(params)
    other = tdd.Probe(SMALL, rows[:24], rows[25:] + rows[24:25], num_draws=29, token_budget=512, seed=5).evaluate(
        params
    )
    np.testing.assert_allclose(other.suspect_scores, one.suspect_scores[:24], rtol=1e-5)
    np.testing.assert_allclose(other.reference_scores[-1], one.suspect_scores[24], rtol=1e-5)


def test_a_function_is_tokenizer_enough():
    def tokenizer(texts, **_):
        return {"input_ids": [[ord(sign) % VOCABULARY for sign in text] for text in texts]}

    texts = [f"item {number}" for number in range(40)]
    probe = tdd.Probe(SMALL, texts[:20], texts[20:], tokenizer=tokenizer, num_draws=29)
    assert bytes(probe.roles["reference"].tokens[3].tolist()) == b"item 23"


@pytest.mark.slow("long")
def test_long_texts_are_cut_where_that_is_asked_for():
    rows = token_rows(44, longest=90, shortest=30)
    cut = tdd.Probe(SMALL, rows[:20], rows[20:], num_draws=29, max_length=20, long_texts="truncate")
    short = tdd.Probe(SMALL, [r[:20] for r in rows[:20]], [r[:20] for r in rows[20:]], num_draws=29)
    np.testing.assert_array_equal(cut.evaluate(weights()).suspect_scores, short.evaluate(weights()).suspect_scores)
    assert cut.roles["suspect"].num_cut == 20


@pytest.mark.slow("long")
def test_memory_holds_one_micro_batch_and_no_copy_of_the_parameters():
    """Width D = 128, L = 6, V = 600, micro-batches of 128 tokens, float32. A layer has 12 D^2 + 13 D numbers, 0.75
    MiB; all parameters, 4.9 MiB, are an argument. Temporary: the slice of one layer (0.75 MiB); 128 tokens of the
    residual stream, of q, k, v and of the MLP's inside, (1 + 3 + 2 * 4) D each (0.75 MiB); one tile of logits with
    its exponentials, 2 * 128 V (0.6 MiB): 2.1 MiB, and a third of it again for the compiler. 4 times as many texts
    and twice as many layers add nothing but a few bytes a text."""
    from tdd.models.decoder import init_params
    from tdd.models.language_model import language_model
    from tdd.models.spec import DecoderSpec

    def temporary(layers, texts):
        spec = DecoderSpec.gpt2(vocab_size=600, width=128, num_layers=layers, num_heads=4, max_length=32)
        params = jax.eval_shape(lambda: init_params(spec, jax.random.key(0)))
        rows = token_rows(texts, shortest=32, longest=32, vocabulary=600)
        probe = tdd.Probe(language_model(spec), rows[::2], rows[1::2], num_draws=29, token_budget=128)
        memory = jax.jit(probe.evaluate).lower(params).compile().memory_analysis()
        if memory is None:
            pytest.skip("this backend does not tell")
        return memory.temp_size_in_bytes, sum(leaf.size * 4 for leaf in jax.tree.leaves(params))

    small, size = temporary(6, 40)
    assert small < 2.8 * 2**20 < size
    assert temporary(12, 160)[0] < small + 2**14
