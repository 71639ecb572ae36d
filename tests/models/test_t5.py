"""T5 against torch's class and against committed numbers; its generation and its sampling."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from decoder_specs import REQUIRED, assert_logits
from family_files import word_tokenizer, write_files
from safetensors.numpy import load_file
from t5_files import CONFIGURATIONS, VOCABULARY, write_t5

from tdd.models.t5 import filtered, generate, load_t5, logits
from tdd.validate import InputError

GOLDEN = {
    "relu, tied": [[-0.13699762, -0.11451253, 0.00741628], [-0.14807326, 0.01669295, -0.03376486]],
    "gated, head of its own": [[-0.83069031, 0.67088741, 0.62108431], [-0.77118874, 0.77173908, 0.50294254]],
    "gated, tied": [[0.04507582, -0.04847258, -0.06935105], [0.17016545, -0.04687345, -0.0218922]],
}
"""Logits of torch's class in float64 on the tensors of `write_t5`: row 1, positions 0 and 6, ids 2, 30 and 66."""

SOURCE = np.random.default_rng(3).integers(2, VOCABULARY, (2, 19)).astype(np.int32)
MASK = np.arange(19) < np.array([[19], [12]])
TARGET = np.concatenate([np.zeros((2, 1), int), np.random.default_rng(4).integers(2, VOCABULARY, (2, 16))], 1)


def compiled(spec, params):
    return np.asarray(jax.jit(logits, static_argnums=0)(spec, params, SOURCE, MASK, TARGET))


def torch_logits(model, dtype):
    import torch

    with torch.no_grad():
        ids = [torch.tensor(np.asarray(one), dtype=torch.long) for one in (SOURCE, MASK, TARGET)]
        return model.to(dtype)(input_ids=ids[0], attention_mask=ids[1], decoder_input_ids=ids[2]).logits.numpy()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_golden_logits(tmp_path, name):
    spec, params, _ = load_t5(write_t5(tmp_path, name))
    found = compiled(spec, params)
    assert found.shape == (2, 17, VOCABULARY)
    layers = spec.num_layers + 2 * spec.num_decoder_layers  # those of the decoder attend twice
    chain = layers * max(spec.width, spec.mlp_width, spec.num_heads * spec.head_dim, SOURCE.shape[1]) + spec.width
    assert_logits(found[1][np.ix_([0, 6], [2, 30, 66])], np.asarray(GOLDEN[name]), chain)


@pytest.mark.torch
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_parity_with_torch(tmp_path, name):
    import torch
    import transformers

    torch.manual_seed(0)
    write_t5(tmp_path / "start", name)
    model = transformers.T5ForConditionalGeneration.from_pretrained(
        tmp_path / "start", attn_implementation="eager", dtype=torch.float32
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path / "saved")
    word_tokenizer(VOCABULARY - 3).save_pretrained(tmp_path / "saved")
    spec, params, _ = load_t5(tmp_path / "saved")
    expected = torch_logits(model, torch.float32)
    difference = np.abs(compiled(spec, params) - expected).max()
    assert np.abs(expected).max() > 0.25
    assert difference <= REQUIRED

    keys = jax.random.split(jax.random.key(0), 2)
    written = np.asarray(generate(spec, params, SOURCE, MASK, keys, longest=24, temperature=0.0))
    ids = [torch.tensor(one, dtype=torch.long) for one in (SOURCE, MASK)]
    with torch.no_grad():
        greedy = model.generate(input_ids=ids[0], attention_mask=ids[1], max_new_tokens=24, do_sample=False).numpy()
    padded = np.zeros((2, 24), int)
    padded[:, : greedy.shape[1] - 1] = greedy[:, 1:]
    np.testing.assert_array_equal(written, padded)


@pytest.mark.torch
@pytest.mark.parametrize("options", [(1.9, 50, 0.95), (0.7, 9, 0.8), (1.0, 500, 1.0), (1.3, 1, 0.5)])
def test_the_distribution_is_that_of_torch_processors(options):
    import torch
    from transformers.generation.logits_process import (
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    scores = 3 * np.random.default_rng(0).standard_normal((40, 300)).astype(np.float32)
    expected = torch.tensor(scores)
    for processor in (TemperatureLogitsWarper(options[0]), TopKLogitsWarper(options[1]), TopPLogitsWarper(options[2])):
        expected = processor(None, expected)
    expected = torch.softmax(expected, -1).numpy()
    found = np.asarray(jax.nn.softmax(filtered(jnp.asarray(scores), *options)))
    np.testing.assert_array_equal(found > 0, expected > 0)
    # both softmax in float32: 300 terms, an exponential, a division, and the exponent's own error
    chain = 300 + 8 + int(np.abs(scores).max() / options[0])
    rounding.assert_close(found, expected, roundings=2 * chain, scale=expected.max())
    other_order = filtered(filtered(jnp.asarray(scores), 1.0, 300, options[2]), options[0], options[1], 1.0)
    if options == (0.7, 9, 0.8):  # top-p first, on logits without temperature, is another distribution
        assert ((np.asarray(other_order) > -np.inf) != (expected > 0)).any()


def test_filtered_by_hand():
    """Probabilities 1/2, 1/4, 1/8, 1/8 at temperature 1."""
    scores, of = np.log(np.float32([[0.125, 0.5, 0.25, 0.125]])), jax.jit(filtered, static_argnums=(1, 2, 3))
    kept = lambda *options: np.flatnonzero(np.asarray(of(scores, *options))[0] > -np.inf).tolist()  # noqa: E731
    assert kept(1.0, 4, 1.0) == [0, 1, 2, 3]
    assert kept(1.0, 2, 1.0) == [1, 2]
    assert kept(1.0, 3, 1.0) == [0, 1, 2, 3]  # the third and the fourth are equal
    assert kept(1.0, 4, 0.7) == [1, 2]
    assert kept(1.0, 4, 0.01) == [1]


@pytest.mark.slow("long")
def test_draws_follow_the_filtered_distribution(tmp_path):
    """The first token of 4,000 rows of one source, against the probabilities of its logits."""
    spec, params, _ = load_t5(write_t5(tmp_path, "relu, tied"))
    rows = 4000
    source, mask = np.repeat(SOURCE[:1], rows, 0), np.repeat(MASK[:1], rows, 0)
    options = {"temperature": 0.3, "top_k": 5, "top_p": 0.9}
    keys = jax.random.split(jax.random.key(1), rows)
    first = np.asarray(generate(spec, params, source, mask, keys, longest=1, **options))[:, 0]
    scores = logits(spec, params, SOURCE[:1], MASK[:1], np.zeros((1, 1), int))[:, 0]
    expected = np.asarray(jax.nn.softmax(filtered(scores, *options.values())))[0]
    share = np.bincount(first, minlength=VOCABULARY) / rows
    assert (expected > 0).sum() > 1
    assert np.abs(share - expected).max() < 5 * np.sqrt(0.25 / rows)
    assert share[expected == 0].max() == 0


def test_padding_and_other_rows_change_nothing(tmp_path):
    spec, params, _ = load_t5(write_t5(tmp_path, "gated, tied"))
    keys = jax.random.split(jax.random.key(2), 2)
    both = np.asarray(generate(spec, params, SOURCE, MASK, keys, longest=12))
    swapped = np.asarray(generate(spec, params, SOURCE[::-1], MASK[::-1], keys[::-1], longest=12))
    np.testing.assert_array_equal(both, swapped[::-1])
    garbled = np.where(MASK, SOURCE, 5)
    np.testing.assert_array_equal(both, np.asarray(generate(spec, params, garbled, MASK, keys, longest=12)))
    other = np.asarray(generate(spec, params, SOURCE, MASK, jax.random.split(jax.random.key(3), 2), longest=12))
    assert (both != other).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mt5"}, "must be a t5"),
        ({"rope": 1}, "meaning is not known: rope"),
        ({"feed_forward_proj": "silu"}, "feed_forward_proj='silu' is not supported"),
        ({"d_model": 25}, "of another shape"),
        ({"d_kv": 0}, "head_dim must be a positive number"),
        ({"eos_token_id": [1]}, "end must be the id of a token"),
        ({"num_layers": 10**9}, "fewer than layers"),
        ({"relative_attention_num_buckets": 7}, "num_buckets=7 must be even"),
    ],
)
def test_configurations_that_are_refused(tmp_path, change, message):
    write_t5(tmp_path, "relu, tied")
    (tmp_path / "config.json").write_text(json.dumps(CONFIGURATIONS["relu, tied"] | change))
    with pytest.raises(InputError, match=message):
        load_t5(tmp_path)


def test_the_cache_gives_the_logits_of_the_whole_target(tmp_path):
    """Greedy output is at every position the largest of the logits that are computed without a cache."""
    spec, params, _ = load_t5(write_t5(tmp_path, "gated, head of its own"))
    keys = jax.random.split(jax.random.key(0), 2)
    written = np.asarray(generate(spec, params, SOURCE, MASK, keys, longest=17, temperature=0.0))
    target = np.concatenate([np.full((2, 1), spec.start), written[:, :-1]], 1)
    whole = np.asarray(jax.jit(logits, static_argnums=0)(spec, params, SOURCE, MASK, target))
    real = np.cumsum(written == spec.end, 1) - (written == spec.end) == 0
    assert real.sum() >= 4
    np.testing.assert_array_equal(written[real], whole.argmax(-1)[real])
    assert (written[~real] == spec.padding).all()


def test_files_as_they_circulate(tmp_path):
    """Copies of the embedding, a table that is not used, float16; a copy that differs is refused."""
    start = write_t5(tmp_path / "start", "relu, tied")
    stored = load_file(start / "model.safetensors")
    config = json.loads((start / "config.json").read_text())
    more = {f"{part}.embed_tokens.weight": stored["shared.weight"] for part in ("encoder", "decoder")}
    more["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = np.ones((8, 3), np.float32)
    write_files(tmp_path / "more", config, stored | more, dtype="float16", tokenizer_size=VOCABULARY - 3)
    spec, params, _ = load_t5(tmp_path / "more")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {"float32"}
    np.testing.assert_array_equal(params["embedding"], stored["shared.weight"].astype(np.float16))
    assert spec.tied_head
    moved = {"decoder.embed_tokens.weight": stored["shared.weight"]}  # what safetensors' save_model keeps
    write_files(
        tmp_path / "moved", config, {name: one for name, one in stored.items() if name != "shared.weight"} | moved,
        tokenizer_size=VOCABULARY - 3,
    )  # fmt: skip
    np.testing.assert_array_equal(load_t5(tmp_path / "moved")[1]["embedding"], stored["shared.weight"])
    more["encoder.embed_tokens.weight"] = 2 * stored["shared.weight"]
    write_files(tmp_path / "other", config, stored | more, tokenizer_size=VOCABULARY - 3)
    with pytest.raises(InputError, match=r"encoder\.embed_tokens\.weight differs from shared\.weight"):
        load_t5(tmp_path / "other")
    stored["encoder.final_layer_norm.weight"][3] = np.nan
    write_files(tmp_path / "nan", config, stored, tokenizer_size=VOCABULARY - 3)
    with pytest.raises(InputError, match="NaN or infinite numbers in 1 of"):
        load_t5(tmp_path / "nan")


def test_a_head_of_its_own_must_be_stored(tmp_path):
    folder = write_t5(tmp_path, "relu, tied")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(InputError, match=r"lm_head\.weight"):
        load_t5(folder)
