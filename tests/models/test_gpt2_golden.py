"""The decoder against committed logits (torch's, in float64), without torch."""

import json
import pathlib

import gpt2_files
import jax
import numpy as np
import pytest

from tdd.models.checkpoint import load

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden" / "gpt2_logits.json").read_text())


@pytest.fixture
def tokens():
    return np.asarray(GOLDEN["tokens"], np.int32)


@pytest.mark.parametrize("name", GOLDEN["configurations"])
def test_golden_logits(tmp_path, tokens, name):
    folder, *_ = gpt2_files.write(tmp_path, **GOLDEN["configurations"][name])
    lm, params, _ = load(folder)
    with jax.default_matmul_precision("highest"):
        logits = np.asarray(jax.jit(lm.logits)(params, tokens))
    assert logits.shape == (*tokens.shape, 48)
    np.testing.assert_allclose(logits[:, ::4, ::3], np.asarray(GOLDEN["logits"][name]), rtol=0, atol=2e-6)


def test_parameters_are_reproducible():
    """The formula that the golden numbers rest on."""
    np.testing.assert_array_equal(
        gpt2_files.values((2, 2), 7),
        np.asarray(GOLDEN["values_2x2_stream_7"], np.float32),
    )


def test_bfloat16_files_stay_close(tmp_path, tokens):
    """bfloat16 parameters move the logits by their rounding, not more."""
    folder, *_ = gpt2_files.write(tmp_path, dtype="bfloat16")
    lm, params, _ = load(folder)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {"bfloat16"}
    logits = lm.logits(params, tokens)
    assert logits.dtype == np.float32
    assert lm.hidden(params, tokens).dtype == lm.readout(params).dtype == "bfloat16"
    assert np.abs(np.asarray(logits)[:, ::4, ::3] - np.asarray(GOLDEN["logits"]["default"])).max() < 0.05
