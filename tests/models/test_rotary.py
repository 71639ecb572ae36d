import numpy as np
import pytest

from tdd.models.rotary import RotaryPositions, YarnScaling, rotate, rotation


def test_pairs_of_neighbours_turn_as_pairs_half_a_width_apart():
    """The same rotation in another order of the coordinates; those behind the first six stay."""
    heads = np.random.default_rng(0).normal(size=(2, 5, 3, 8)).astype(np.float32)
    turns = rotation(RotaryPositions(5, 6), 5)
    order = [0, 2, 4, 1, 3, 5, 6, 7]
    apart = rotate(heads[..., order], *turns)
    np.testing.assert_array_equal(rotate(heads, *turns, interleaved=True)[..., order], apart)
    assert not np.allclose(rotate(heads, *turns), rotate(heads, *turns, interleaved=True))


def test_yarn_at_the_ends_of_its_ramp():
    """Qwen2.5 stretched fourfold: pairs 23.6 and 39.7 turn 32 times and once in 32,768 tokens, rounded outwards."""
    plain = 1e6 ** (-np.arange(64) / 64)
    scaling = YarnScaling(4.0, 32_768)
    slowed = plain / scaling.scaled(plain, 1e6)
    np.testing.assert_allclose(slowed[:24], 1, rtol=1e-12)
    assert slowed[24] == pytest.approx(1 / (1 - 0.75 / 17))
    assert slowed[39] == pytest.approx(1 / (1 - 0.75 * 16 / 17))
    np.testing.assert_allclose(slowed[40:], 4, rtol=1e-12)
    exact = YarnScaling(4.0, 32_768, truncate=False)
    turns = 32_768 * plain / (2 * np.pi)  # the ramp is linear in log turns, from 32 turns to one
    share = np.clip(1 - np.log(turns) / np.log(32), 0, 1)
    np.testing.assert_allclose(exact.scaled(plain, 1e6) / plain, 1 - 0.75 * share, rtol=1e-12)
