"""Every family against committed logits (torch's, in float64 as far as its classes go), without torch."""

import jax
import numpy as np
import pytest
from decoder_specs import assert_logits, roundings
from family_configs import CONFIGURATIONS, LENGTH
from family_files import golden, values, write

from tdd.models.checkpoint import load

SHOWN = (slice(None), slice(None, None, 5), slice(None, None, 7))


@pytest.fixture
def tokens():
    return np.asarray(golden()["tokens"], np.int32)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_golden_logits(tmp_path, tokens, name):
    lm, params, _ = load(write(tmp_path, name)[0])
    # compiled in haste: the same configurations meet torch with every optimisation
    compiled = jax.jit(lm.logits, compiler_options={"xla_backend_optimization_level": 0})
    with jax.default_matmul_precision("highest"):
        logits = np.asarray(compiled(params, tokens))
    assert logits.shape == (*tokens.shape, lm.vocab_size)
    expected = np.asarray(golden()["configurations"][name]["logits"])
    assert np.abs(expected).max() > 0.25
    assert_logits(logits[SHOWN], expected, roundings(lm.spec, tokens.shape[1]))


def test_parameters_are_reproducible():
    """The formula that the golden numbers rest on."""
    np.testing.assert_array_equal(values((2, 2), 7), np.asarray(golden()["values_2x2_stream_7"], np.float32))


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "mixtral", "olmoe", "qwen3_moe, dense layers"])
@pytest.mark.slow("long")
def test_bfloat16_files_stay_close(tmp_path, tokens, name):
    """bfloat16 parameters move the logits by their rounding, not more; nothing is widened."""
    lm, params, _ = load(write(tmp_path, name, dtype="bfloat16")[0])
    assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {"bfloat16"}
    logits = jax.jit(lm.logits)(params, tokens)
    assert logits.dtype == np.float32
    hidden, readout = (jax.eval_shape(function, *args) for function, *args in (
        (lm.hidden, params, tokens), (lm.readout, params),
    ))  # fmt: skip
    assert hidden.dtype == readout.dtype == "bfloat16"
    expected = np.asarray(golden()["configurations"][name]["logits"])
    assert np.abs(np.asarray(logits)[SHOWN] - expected).max() < 0.05


@pytest.mark.torch
@pytest.mark.parametrize(
    "name",
    [
        *("gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "falcon, as its 40B", "mpt", "bloom", "opt, as its 350M"),
        *("qwen3", "gemma2", "phi"),
        *("mixtral", "gpt_oss", "olmoe", "qwen3_moe, dense layers"),
    ],
)
def test_the_record_is_torch(tmp_path, name):
    """Written anew by `python -m golden_logits`; what torch computes in float32 there rounds like ours."""
    from golden_logits import recorded

    kept, found = golden()["configurations"][name], recorded(name)
    assert {key: found[key] for key in ("num_layers", "layer", "other")} == {
        key: kept[key] for key in ("num_layers", "layer", "other")
    }
    spec = load(write(tmp_path, name)[0])[0].spec
    assert_logits(found["logits"], kept["logits"], roundings(spec, LENGTH))
