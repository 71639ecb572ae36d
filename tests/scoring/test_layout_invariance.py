"""For every kind of decoder: neither batch nor bucket nor padding changes a score; no program holds all logits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from decoder_specs import POSITIONS, SPECS, VOCABULARY, perturbed_model
from word_tokenizer import word_tokenizer

from tdd.kernels.token_stats import TokenStatistics
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.scoring import programs
from tdd.scoring.devices import find_devices
from tdd.scoring.score import score
from tdd.scoring.token_stats import Tiling
from tdd.scoring.tokenise import Window

NAMES = ("loss", "min_k:k=0.3", "min_k_plus_plus", "m_entropy", "max_renyi:gamma=2,k=0.5", "max_renyi:gamma=1,k=0")


def random_texts(count, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, POSITIONS + 30, count)  # some are scored in windows
    return [" ".join(f"{'Ww'[i % 2]}{i // 2}" for i in rng.integers(0, VOCABULARY, n)) for n in lengths]


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        "llama",
        *(pytest.param(name, marks=pytest.mark.slow("grid")) for name in SPECS if name not in ("gpt2", "llama")),
    ],
)
def test_no_score_depends_on_batch_bucket_or_padding(name):
    """In batches of up to 400 tokens with neighbours of any length; in another order and other batches, or alone."""
    names = NAMES if name in ("gpt2", "gemma2") else NAMES[:2]  # the head is the same for all, but for a soft cap
    model = (*perturbed_model(name), word_tokenizer(VOCABULARY))
    texts = random_texts(10)
    together = score(model, texts, names, token_budget=400, progress=False)
    order = np.random.default_rng(1).permutation(len(texts))
    shuffled = score(model, [texts[i] for i in order], names, token_budget=90, progress=False)
    assert shuffled.provenance["batch_shapes"] != together.provenance["batch_shapes"]
    for label in names:
        assert np.isfinite(together[label]).all()
        np.testing.assert_allclose(shuffled[label], together[label][order], rtol=1e-5, atol=1e-6, err_msg=label)


def test_no_program_holds_the_logits_of_a_batch():
    """V = 8192, 1024 scored positions, width 16: all logits are 1024 * 8192 * 4 bytes = 32 MiB. A tile of 64 rows is
    2 MiB, and at most four of its size are alive (products, logits, exponentials, those on another scale); readout
    and hidden states are 0.5 MiB and 64 KiB. The trunk has attention scores of 8 * 2 * 128 * 128 * 4 bytes, 1 MiB,
    twice."""
    spec = DecoderSpec.gpt2(vocab_size=8192, width=16, num_layers=2, num_heads=2, max_length=128)
    lm, capped = language_model(spec), language_model(dataclasses.replace(spec, soft_cap=30.0))
    where, tile = find_devices(), Tiling(64, 2048)
    params = jax.eval_shape(lambda: init_params(spec, jax.random.key(0)))

    def of(shape, dtype=jnp.int32):
        return jax.ShapeDtypeStruct(shape, dtype)

    rows = of((1024,))
    trunk = programs._trunk.lower(lm, where, params, of((8, 128)), rows)
    hidden = of((1024, 16), jnp.float32)
    heads = [
        programs._head.lower(one, where, params, hidden, rows, of(()), tile=tile, wanted=wanted, num_rows=1024)
        for one in (lm, capped)
        for wanted in (TokenStatistics._fields, ("log_prob",))
    ]
    everything = 1024 * 8192 * 4
    for lowered, most in ((trunk, everything // 8), *((head, everything // 3) for head in heads)):
        used = lowered.compile().memory_analysis()
        assert used.temp_size_in_bytes + used.output_size_in_bytes < most


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.bfloat16, marks=pytest.mark.slow("grid"))])
def test_a_statistic_is_the_same_whatever_else_is_wanted(dtype):
    """The head's program computes only the statistics that a pass delivers, from the same logits: what may differ is
    the order of the two sums over the vocabulary that a statistic takes."""
    lm, params = perturbed_model("gpt2")
    params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), dtype), params)
    text = np.arange(9, dtype=np.int32)
    program = programs.TokenProgram(lm, params, find_devices(), 16, Tiling(16, 32))

    def found(*wanted):
        rows = programs.Rows((text,), np.zeros(1, int), [Window(0, 1, 9)], wanted)
        started = program.start([np.zeros(1, int)], 1, 16, rows, 0)
        assert set(started[0]) == set(wanted)
        return dict(zip(wanted, program.fetch(started, rows)[0], strict=True))

    everything = found(*TokenStatistics._fields)
    for wanted in (
        ("mu",),
        ("sigma",),
        ("rank",),
        ("m_entropy",),
        ("renyi_half", "renyi_inf"),
        ("log_prob", "mu", "sigma"),
    ):
        for name, values in found(*wanted).items():
            assert values.shape == (8,)
            rounding.assert_close(values, everything[name], roundings=2 * lm.vocab_size)
