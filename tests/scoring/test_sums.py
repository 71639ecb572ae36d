"""Sums of log-probabilities of sequences: every row once, every shared prefix once, whatever was asked before."""

import numpy as np
from decoder_specs import REQUIRED
from scored_models import VOCABULARY, losses_of_tokens, small_model

from tdd.scoring.devices import find_devices
from tdd.scoring.inputs import Model
from tdd.scoring.sums import LogProbSums, Row


def reference(lm, params, row):
    """In float64 from the logits of the whole row."""
    model = lm, params, None
    return -losses_of_tokens(model, [], row.tokens)[row.first_target - 1 :].sum()


def test_rows_and_prefixes_are_computed_once():
    lm, params = small_model(positions=64)
    rng = np.random.default_rng(0)
    begin = rng.integers(0, VOCABULARY, 20).astype(np.int32)
    ends = rng.integers(0, VOCABULARY, (3, 8)).astype(np.int32)
    sharing = [Row(np.concatenate([begin, end]), 20, num_shared=20) for end in ends]
    whole = [Row(end, 1) for end in ends[:2]]
    done = []
    sums = LogProbSums(
        Model(lm, params, None, "small"),
        find_devices("cpu"),
        budget=64,
        limit=64,
        most_sequences=9,
        advance=done.append,
    )
    found = sums([(sharing[0],), (sharing[1],), (sharing[0],), (whole[0], whole[1])])
    one, two, three, four = (reference(lm, params, row) for row in (*sharing[:2], *whole))
    np.testing.assert_allclose(found.log_probs, [one, two, one, three + four], rtol=REQUIRED)
    assert found.log_probs[0] == found.log_probs[2]
    assert found.num_rows.tolist() == [1, 1, 0, 2]
    assert found.num_tokens.tolist() == [28, 9, 0, 16]
    assert sum(done) == 4
    again = sums([(whole[0],), (sharing[2],)])
    assert again.num_rows.tolist() == [0, 1]
    assert again.num_tokens.tolist() == [0, 28]
    np.testing.assert_allclose(again.log_probs, [three, reference(lm, params, sharing[2])], rtol=REQUIRED)
    assert sum(done) == 6
