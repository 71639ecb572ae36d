"""The peers against slow references of their own: an unfair or wrong peer is worthless."""

from fractions import Fraction

import numpy as np
import pytest
import references as ref
import references_bounds
import references_envelope
import references_permutation

from benchmarks.throughput.peers import ranking, resampling, stepup, tests


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_subtraction_and_ptdi(rng):
    for trial in range(30):
        calibration, scores = rng.integers(0, 40, 25) / 8, rng.integers(0, 30, 31) / 8
        eta = (0.05, 0.2, 0.5)[trial % 3]
        expected = 1 - float(ref.subtraction_pi0(calibration, scores, eta))
        assert ranking.subtraction(np.sort(calibration), scores, eta) == pytest.approx(expected, abs=1e-12)
        for proportion, own in (("none", None), ("subtraction", eta)):
            selected = ranking.ptdi(0.3, own)(calibration, scores)["selected"]
            reference = ref.ptdi(calibration, scores, 0.3, proportion, eta)
            np.testing.assert_array_equal(selected, reference[0])


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.6])
def test_joint_selections(rng, alpha):
    selected = 0
    for trial in range(15):
        shift = 2.5 * (rng.random(60) < 0.5)
        calibration, scores = rng.normal(size=(3, 30)), rng.normal(size=(3, 60)) + shift
        if trial % 2:
            calibration, scores = calibration.round(1), scores.round(1)
        ranks, n = references_envelope.max_ranks(calibration, scores)
        p = [Fraction(r, n + 1) for r in ranks]
        found = ranking.jecs(alpha)(calibration, scores)["selected"]
        np.testing.assert_array_equal(found, references_envelope.jecs(p, alpha)[0])
        np.testing.assert_array_equal(
            ranking.jmcs(alpha)(calibration, scores)["selected"], references_envelope.jmcs(p, alpha, n)[0]
        )
        selected += found.sum()
    assert selected > 0


@pytest.mark.parametrize(
    ("peer", "reference"), [(stepup.hommel_numpy, references_bounds.hommel), (stepup.holm_numpy, ref.holm)]
)
def test_family_wise(rng, peer, reference):
    counts = []
    for _ in range(40):
        p = rng.random(12) ** rng.choice([1, 3])
        found = peer(0.3)(p)["reject"]
        np.testing.assert_array_equal(found, reference([Fraction(x) for x in p], 0.3)[0])
        counts.append(found.sum())
    assert min(counts) == 0
    assert max(counts) > 3


def test_rank_sum_tail():
    expected = [float(x) for x in references_permutation.rank_sum_law(4, 3)]
    np.testing.assert_allclose(tests.rank_sum_tail(4, 3), expected, rtol=1e-12)


@pytest.mark.parametrize("reuse", [False, True])
def test_resampling_loop_is_the_definition(rng, reuse):
    """Recomputed split by split with the rational reference, on scores with ties."""
    scores, is_member = rng.integers(0, 9, 26) / 4, rng.random(26) < 0.5
    scores = scores - 1.5 * is_member
    alphas = (0.2, 0.5)
    found = resampling.resample(scores, is_member, alphas, 25, seed=3, eta=0.2, reuse=reuse)
    again = np.random.default_rng(3)
    some = 0
    for row in found:
        order = again.permutation(26)
        first, second = order[:13], order[13:]
        calibration, member = scores[first[~is_member[first]]], is_member[second]
        for j, proportion in enumerate(("none", "subtraction")):
            for k, alpha in enumerate(alphas):
                selected = np.array(ref.ptdi(calibration, scores[second], alpha, proportion, 0.2)[0])
                fdp = (selected & ~member).sum() / max(selected.sum(), 1)
                power = (selected & member).sum() / max(member.sum(), 1)
                assert row[:, j, k] == pytest.approx([fdp, power])
                some += selected.sum()
    assert some > 50
