"""Accumulated gradients, mixed precision and LoRA: the same mathematics, and the same bits after an interruption."""

import collections
import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_specs import perturbed_params

from tdd import InputError
from tdd.device_kinds import DeviceKind
from tdd.lab.corpus import generate
from tdd.lab.lora import Lora, init_factors, merge
from tdd.lab.step import Weights, accumulate, fills, token_losses
from tdd.lab.tokens import Batches, encode, train_tokenizer
from tdd.lab.train import TrainConfig, evaluation_loss, train
from tdd.models import checkpoint
from tdd.models.gradients import activation_bytes
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.records import LanguageModel

CORPUS = generate(30, seed=2).texts
TEXTS, HELD_OUT = CORPUS[:18], CORPUS[18:24]
SPEC = DecoderSpec.gpt2(vocab_size=300, width=16, num_layers=2, num_heads=2, max_length=64)
LM = language_model(SPEC)
CONFIG = TrainConfig(epochs=2, batch_size=3, learning_rate=1e-2, num_buckets=1, save_every=2, seed=7, max_length=64)
LORA = Lora(rank=2, alpha=4.0)


def _toy_logits(params, tokens):
    hidden = params["embedding"]["tokens"][tokens]
    for layer in range(2):
        kernel = params["layers"]["qkv"]["kernel"][layer]
        hidden = jnp.tanh(hidden.astype(kernel.dtype) @ kernel + params["layers"]["qkv"]["bias"][layer])
    return (hidden @ params["head"]["kernel"].T).astype(jnp.float32)


TOY = LanguageModel("toy", 300, None, _toy_logits)
"""Seconds faster to compile than a decoder, for what does not depend on the model."""


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(CORPUS, vocab_size=300)


@pytest.fixture(scope="module")
def start():
    return perturbed_params(SPEC, spread=0.02)


@pytest.fixture(scope="module")
def rows(tokenizer):
    return encode("texts", tokenizer, TEXTS, max_length=64, vocab_size=300)


@pytest.fixture(scope="module")
def toy():
    normal = np.random.default_rng(0).normal
    return {
        "embedding": {"tokens": jnp.asarray(normal(size=(300, 12)), jnp.float32)},
        "layers": {
            "qkv": {
                "kernel": jnp.asarray(normal(size=(2, 12, 12)) / 3, jnp.float32),
                "bias": jnp.asarray(normal(size=(2, 12)) / 5, jnp.float32),
            }
        },
        "head": {"kernel": jnp.asarray(normal(size=(300, 12)) / 3, jnp.float32)},
    }


def assert_identical(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def gradient_sums(weights, frozen, trained, rows, batch_size):
    """Summed gradient and number of targets by `accumulate`, over all rows."""
    sums, total, count = jax.tree.map(jnp.zeros_like, trained), 0.0, 0
    batches = Batches(rows, batch_size=batch_size, num_buckets=1, max_length=64, seed=0)
    for batch in batches.in_order():
        sums, loss, scored = accumulate(TOY, weights, frozen, trained, sums, *batch)
        total, count = total + float(loss), count + int(scored)
    return sums, total, count


def test_accumulated_gradient_is_that_of_the_whole_batch(toy, rows):
    length = max(len(row) for row in rows)
    tokens = np.zeros((len(rows), length), np.int32)
    mask = np.zeros((len(rows), length), bool)
    for index, row in enumerate(rows):
        tokens[index, : len(row)], mask[index, 1 : len(row)] = row, True

    def mean_loss(params):
        return jnp.sum(token_losses(TOY, params, jnp.asarray(tokens), jnp.asarray(mask))) / mask.sum()

    loss, whole = jax.jit(jax.value_and_grad(mean_loss))(toy)
    sums, total, count = gradient_sums(Weights(), None, toy, rows, 7)
    assert count == mask.sum()
    assert total / count == pytest.approx(float(loss), rel=1e-5)
    scale = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(whole))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a / count, b, rtol=1e-4, atol=1e-5 * scale), sums, whole)


def test_a_step_of_all_batches_moves_as_one_large_batch(tokenizer, toy):
    """Adam's first direction is the gradient's sign: weights, not only gradients, agree where it is not near 0."""
    small = dataclasses.replace(CONFIG, epochs=1, accumulate=100)
    large = dataclasses.replace(CONFIG, epochs=1, batch_size=100)
    many = train(TOY, toy, tokenizer, TEXTS, config=small)
    one = train(TOY, toy, tokenizer, TEXTS, config=large)
    assert [line["step"] for line in many.history] == [line["step"] for line in one.history] == [1]
    assert many.history[0]["loss"] == pytest.approx(one.history[0]["loss"], rel=1e-6)
    moved = [np.abs(a - b).ravel() for a, b in zip(*map(jax.tree.leaves, (many.params, one.params)), strict=True)]
    assert np.quantile(np.concatenate(moved), 0.999) < 1e-4 * CONFIG.learning_rate


def test_steps_of_an_epoch_are_rounded_up_and_never_cross_it(tokenizer, toy, rows):
    per_epoch = Batches(rows, batch_size=3, num_buckets=1, max_length=64, seed=7).per_epoch
    for number in (2, 3, per_epoch, per_epoch + 5):
        config = dataclasses.replace(CONFIG, accumulate=number)
        history = train(TOY, toy, tokenizer, TEXTS, config=config).history
        expected = -(-per_epoch // number)
        assert [line["step"] for line in history] == [expected, 2 * expected]


MODES = {
    "accumulated": ({"accumulate": 3}, None),
    "all": ({"accumulate": 2, "compute_dtype": "bfloat16"}, LORA),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.slow("long")
def test_a_resumed_run_ends_with_the_same_bits(tokenizer, start, tmp_path, monkeypatch, mode):
    """Interrupted between steps, then between the batches of one step."""
    change, lora = MODES[mode]
    config = dataclasses.replace(CONFIG, **change)
    options = {"config": config, "lora": lora, "eval_texts": HELD_OUT}
    uninterrupted = train(LM, start, tokenizer, TEXTS, **options)
    total = uninterrupted.history[-1]["step"]
    assert uninterrupted.history[-1]["loss"] < uninterrupted.history[0]["loss"]
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(uninterrupted.params))
    held_out = evaluation_loss(LM, uninterrupted.params, tokenizer, HELD_OUT, config=config)
    assert uninterrupted.history[-1]["eval_loss"] == held_out

    def interrupt(step, params):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(LM, start, tokenizer, TEXTS, **options, out=tmp_path, on_step=interrupt)
    made, finished = Batches._batch, []

    def fails_at_the_fourth(self, indices):
        finished.append(indices)
        if len(finished) == 4:
            raise KeyboardInterrupt
        return made(self, indices)

    monkeypatch.setattr(Batches, "_batch", fails_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        train(LM, start, tokenizer, TEXTS, **options, out=tmp_path)
    monkeypatch.undo()
    seen = []
    resumed = train(LM, start, tokenizer, TEXTS, **options, out=tmp_path, on_step=lambda step, _: seen.append(step))
    assert 1 < seen[0] < total
    assert_identical(resumed.params, uninterrupted.params)
    assert resumed.history == uninterrupted.history
    assert_identical(checkpoint.load(tmp_path / "checkpoint")[1], uninterrupted.params)
    record = json.loads((tmp_path / "training.json").read_text())
    assert TrainConfig(**record["config"]) == config
    assert (record["lora"] and Lora(**record["lora"])) == lora


def test_bfloat16_runs_the_products_in_bfloat16_and_stays_near_float32(start, toy, rows):
    working = Weights(compute_dtype="bfloat16").working(None, start)
    kinds = {jax.tree_util.keystr(path): leaf.dtype for path, leaf in jax.tree_util.tree_flatten_with_path(working)[0]}
    assert {name for name, kind in kinds.items() if kind == jnp.bfloat16} == {
        name for name in kinds if "kernel" in name or "embedding" in name
    }
    exact, _, count = gradient_sums(Weights(), None, toy, rows, 7)
    rounded, _, _ = gradient_sums(Weights(compute_dtype="bfloat16"), None, toy, rows, 7)
    for right, left in zip(jax.tree.leaves(exact), jax.tree.leaves(rounded), strict=True):
        assert left.dtype == jnp.float32
        assert np.linalg.norm(left - right) < 0.05 * np.linalg.norm(right)
        assert not np.array_equal(left, right)
    assert count


TOKENS = np.random.default_rng(0).integers(0, 300, (3, 24)).astype(np.int32)
MASK = np.arange(24) > np.zeros((3, 1))


def test_products_of_the_gradient_take_bfloat16_factors(start):
    """In the backward pass too: a product with a float32 factor runs without matrix units."""

    def total(params):
        return token_losses(LM, Weights(compute_dtype="bfloat16").working(None, params), TOKENS, MASK).sum()

    text = jax.jit(jax.grad(total)).lower(start).as_text()
    products = [line.rpartition(" : ")[2] for line in text.splitlines() if "dot_general" in line]
    factors = collections.Counter(tuple(re.findall(r"x(bf16|f32)>", line)[:2]) for line in products)
    weights = 4 + 1  # of a block, which a loop repeats, and of the head
    in_attention = 2  # on a CPU
    assert factors == {("bf16", "bf16"): 3 * weights, ("f32", "f32"): 3 * in_attention}


@pytest.mark.parametrize(("kind", "again"), [("gpu", False), ("gpu", True), ("cpu", False)])
def test_blocks_are_computed_again_where_activations_fill_an_accelerator(kind, again):
    memory = {"gpu": 2**10 if again else 2**40, "cpu": None}[kind]
    assert fills(LM, DeviceKind(kind, memory), *TOKENS.shape) == again
    assert not fills(TOY, DeviceKind("gpu", 2**10), *TOKENS.shape)
    short = 4 * activation_bytes(SPEC, 3, SPEC.max_length)
    assert not fills(LM, DeviceKind("gpu", short), 3, 10 * SPEC.max_length)  # texts are cut at the model's limit


def test_steps_that_compute_blocks_again_are_programs_of_their_own(start):
    """The same gradient, and a static argument that tells the two apart."""
    found = {}
    for again in (False, True):
        weights, sums = Weights(remat=again), jax.tree.map(jnp.zeros_like, start)
        found[again] = accumulate(LM, weights, None, start, sums, TOKENS, MASK)
        sums = jax.tree.map(jnp.zeros_like, start)
        text = str(accumulate.trace(LM, weights, None, start, sums, TOKENS, MASK).jaxpr)
        assert ("remat" in text) == again
    for one, other in zip(*(jax.tree.leaves(tree) for tree in found.values()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


class TestLora:
    """Factors alone move; the product is what is added."""

    OF_TOY = Lora(rank=2, alpha=4.0, leaves=("qkv",))

    def test_begins_at_the_base_exactly_and_leaves_it_alone(self, tokenizer, start):
        factors = init_factors(LORA, start, seed=0)
        assert_identical(merge(LORA, start, factors), start)
        kept = jax.tree.map(np.array, start)
        result = train(LM, start, tokenizer, TEXTS, config=CONFIG, lora=LORA)
        assert_identical(start, kept)
        changed = {
            path[1].key
            for (path, new), old in zip(
                jax.tree_util.tree_flatten_with_path(result.params)[0], jax.tree.leaves(start), strict=True
            )
            if not np.array_equal(new, old)
        }
        assert changed == set(LORA.leaves)

    @pytest.mark.slow("long")
    def test_the_update_has_the_rank_and_is_the_scaled_product(self, tokenizer, start):
        result = train(LM, start, tokenizer, TEXTS, config=CONFIG, lora=LORA)
        for name in LORA.leaves:
            change = result.params["layers"][name]["kernel"] - start["layers"][name]["kernel"]
            pair = {key: np.asarray(value, np.float64) for key, value in result.factors[f"layers/{name}"].items()}
            for layer in range(SPEC.num_layers):
                by_hand = LORA.alpha / LORA.rank * pair["a"][layer] @ pair["b"][layer]
                np.testing.assert_allclose(change[layer], by_hand, atol=1e-6)
                singular = np.linalg.svd(by_hand, compute_uv=False)
                assert singular[1] > 1e-6 > singular[2]

    def test_gradients_are_those_of_the_factors(self, toy, rows):
        """The derivative of the loss along a random direction of A and B, by central differences."""
        factors = init_factors(self.OF_TOY, toy, seed=0)
        rng = np.random.default_rng(1)
        factors = jax.tree.map(lambda leaf: np.float32(leaf + 0.05 * rng.normal(size=leaf.shape)), factors)
        direction = jax.tree.map(lambda leaf: np.float32(rng.normal(size=leaf.shape)), factors)
        sums, _, _ = gradient_sums(Weights(self.OF_TOY), toy, factors, rows, 7)
        slope = sum(float(np.vdot(a, b)) for a, b in zip(*map(jax.tree.leaves, (sums, direction)), strict=True))

        def loss_at(step):
            moved = jax.tree.map(lambda leaf, along: leaf + np.float32(step) * along, factors, direction)
            return gradient_sums(Weights(self.OF_TOY), toy, moved, rows, 7)[1]

        assert slope == pytest.approx((loss_at(1e-3) - loss_at(-1e-3)) / 2e-3, rel=2e-2)

    def test_optimizer_state_is_that_of_the_factors(self, tokenizer, start, tmp_path):
        def interrupt(step, params):
            if step == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(LM, start, tokenizer, TEXTS, config=CONFIG, lora=LORA, out=tmp_path, on_step=interrupt)
        size = (tmp_path / "training_state.safetensors").stat().st_size
        factors = sum(leaf.size for leaf in jax.tree.leaves(init_factors(LORA, start, seed=0)))
        whole = sum(leaf.size for leaf in jax.tree.leaves(start))
        assert 3 * 4 * factors < size < 3 * 4 * factors + 8000 < 3 * 4 * whole

    @pytest.mark.parametrize(
        ("make", "named"),
        [
            (lambda: Lora(rank=0), "rank"),
            (lambda: Lora(alpha=-1.0), "alpha"),
            (lambda: Lora(alpha=0.0), "alpha"),  # would train nothing
            (lambda: Lora(leaves=()), "leaves"),
            (lambda: Lora(leaves="qkv"), "leaves"),  # pyright: ignore[reportArgumentType]
            (lambda: Lora(leaves=("qkv", "qkv")), "'qkv' twice"),
            (lambda: TrainConfig(compute_dtype="float16"), "float16.*bfloat16"),
            (lambda: TrainConfig(accumulate=0), "accumulate"),
            (lambda: TrainConfig(beta1=1.0), r"beta1 must be below 1, got 1\.0"),  # 0 / 0 at the first step
            (lambda: TrainConfig(beta2=1), "beta2 must be below 1, got 1"),
            (lambda: TrainConfig(eps=0.0), "eps must be a positive number"),  # 0 / 0 where a gradient is 0
        ],
    )
    def test_refused_options(self, make, named):
        with pytest.raises(InputError, match=named):
            make()

    def test_names_and_ranks_that_the_model_does_not_have(self, start):
        with pytest.raises(InputError, match=r"'q_proj'.*layers/attention_out.*layers/qkv"):
            init_factors(Lora(leaves=("q_proj",)), start, seed=0)
        with pytest.raises(InputError, match=r"rank=17 exceeds.*at most 16"):
            init_factors(Lora(rank=17), start, seed=0)

    def test_another_rank_does_not_continue_the_run(self, tokenizer, start, tmp_path):
        def interrupt(step, params):
            if step == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(LM, start, tokenizer, TEXTS, config=CONFIG, lora=LORA, out=tmp_path, on_step=interrupt)
        with pytest.raises(InputError, match="another model"):
            train(LM, start, tokenizer, TEXTS, config=CONFIG, lora=Lora(rank=3), out=tmp_path)
