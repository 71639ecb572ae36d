"""Every design draws from the law that it names: moments, correlations, label shares, sizes; bad ones are refused."""

import dataclasses
import functools

import drawn_keys
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tdd
from tdd.study import CorrelatedDetectors, JointLabels, Mixture, NormalShift, PairedScores, Pool, Sample, SkewedShards
from tdd.study.named import ktd, td4eval

DRAWS = 400


@jax.jit
def samples(design, keys):
    return jax.vmap(design.draw)(keys)


@functools.cache
def keys_of(count):
    return jax.random.split(jax.random.key(0), count)


def draw(design, count=DRAWS):
    """Samples with a leading axis, in NumPy; the design's numbers are operands."""
    return jax.tree.map(np.asarray, samples(jax.tree.map(np.asarray, design), keys_of(count)))


def assert_law(values, law, frozen=False):
    """Kolmogorov-Smirnov; seeds are fixed, and 1e-4 is far below what a wrong law would give."""
    assert stats.kstest(np.ravel(values), law).pvalue > 1e-4


SHIFT = NormalShift(num_calibration=20, num_tests=30, target_share=0.3, signal=1.5, spread=0.5)
MIXTURE = Mixture(
    num_calibration=50,
    num_tests=40,
    null_components=((3, 0, 1), (1, 5, 0.5)),
    target_components=[[1.0, -4.0, 2.0]],
)
DETECTORS = CorrelatedDetectors(num_detectors=3, num_calibration=20, num_tests=20, correlation=0.6, signal=(0, 1, 2))
STUDENT = CorrelatedDetectors(num_calibration=9, num_tests=8, degrees=3.0, signal=(1.0, 0.0, 0.5, 2.0, 1.5))
JOINT = JointLabels(num_models=3, num_calibration=30, num_tests=20, signal=2.0, member_share=0.25)
PAIRED = PairedScores(num_tests=10, num_knockoffs=2, num_calibration=5, num_members=4, signal=3.0, item_spread=0.0)
SHARDS = SkewedShards(num_shards=20, num_shuffles=9, signal=2.0, shifted_share=0.25, law="normal")
POOL = Pool(np.arange(20.0), np.arange(20) % 2 == 0)
EVERY = [
    SHIFT,
    MIXTURE,
    DETECTORS,
    STUDENT,
    JOINT,
    PAIRED,
    PairedScores(num_tests=8, num_knockoffs=3, num_calibration=9),
    SHARDS,
    POOL,
    Pool(POOL.scores, POOL.is_member, test_members=0.25),
]


@pytest.mark.parametrize(
    "draw",
    [*(design.draw for design in EVERY), functools.partial(ktd.AnyLaw()._of, law="normal"), td4eval.Mislabelled().draw],
    ids=lambda draw: type(getattr(draw, "__self__", ktd.AnyLaw())).__name__,
)
def test_parts_of_a_sample_are_drawn_from_keys_of_their_own(draw, monkeypatch):
    """No key serves twice, also where `split` and `fold_in` of one key give the same."""
    with drawn_keys.recorded(monkeypatch) as uses:
        draw(jax.random.key(0))
    assert uses
    assert {key: count for key, count in uses.items() if count > 1} == {}


def test_a_key_of_split_that_fold_in_gives_again_is_seen(monkeypatch):
    def twice(key):
        first, second = jax.random.split(key)
        return jax.random.normal(second) + jax.random.normal(jax.random.fold_in(key, 1)) + jax.random.normal(first)

    with drawn_keys.recorded(monkeypatch) as uses:
        twice(jax.random.key(0))
    assert sorted(uses.values()) == [1, 1, 2]


@pytest.mark.parametrize("design", EVERY, ids=lambda design: type(design).__name__)
def test_designs_are_pytrees_that_draw_samples(design):
    """Their numbers may be operands; other keys give other samples."""
    drawn = draw(design)
    assert isinstance(drawn, Sample)
    assert not np.array_equal(*drawn.scores[:2])
    assert drawn.target.dtype == bool
    assert drawn.target.shape == (DRAWS, drawn.scores.shape[-1])
    assert design.null in ("nonmember", "member")


@pytest.mark.parametrize(
    "design",
    [DETECTORS, pytest.param(STUDENT, marks=pytest.mark.slow("long")), EVERY[-1]],
    ids=lambda design: type(design).__name__,
)
def test_numbers_that_are_constants_give_the_same_sample(design):
    constant = jax.jit(jax.vmap(design.draw))(keys_of(DRAWS))
    for one, other in zip(jax.tree.leaves(constant), jax.tree.leaves(draw(design)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("null", ["nonmember", "member"])
def test_normal_shift(null):
    drawn = draw(dataclasses.replace(SHIFT, null=null))
    side = -1 if null == "nonmember" else 1
    assert (drawn.target.sum(axis=1) == 9).all()
    assert_law(drawn.calibration, "norm")
    assert_law(drawn.scores[~drawn.target], "norm")
    assert_law(drawn.scores[drawn.target], stats.norm(1.5 * side, 0.5).cdf)
    assert abs(np.corrcoef(drawn.calibration[:, 0], drawn.scores[:, -1])[0, 1]) < 4 / np.sqrt(DRAWS)


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(NormalShift, num_calibration=2),
        functools.partial(CorrelatedDetectors, num_calibration=2, num_detectors=1),
        functools.partial(PairedScores, num_calibration=2),
    ],
)
def test_random_labels_have_their_share(make):
    drawn = draw(make(num_tests=50, target_share=0.2, labels="random"))
    counts = drawn.target.sum(axis=1)
    assert abs(counts.mean() - 10) < 4 * np.sqrt(8 / DRAWS)
    assert counts.var() == pytest.approx(8, rel=0.3)


def test_mixture():
    drawn = draw(MIXTURE)

    def null(x):
        return 0.75 * stats.norm.cdf(x) + 0.25 * stats.norm.cdf(x, 5, 0.5)

    assert_law(drawn.calibration, null)
    assert_law(drawn.scores[~drawn.target], null)
    assert_law(drawn.scores[drawn.target], stats.norm(-4, 2).cdf)
    assert drawn.target.mean() == 0.5


@pytest.mark.parametrize(
    ("law", "reference"),
    [("uniform", "uniform"), ("exponential", "expon"), ("lognormal", stats.lognorm(1).cdf)],
)
def test_correlated_detectors_have_their_margins(law, reference):
    drawn = draw(CorrelatedDetectors(num_detectors=3, num_calibration=8, num_tests=4, correlation=0.6, law=law))
    for row in range(3):
        assert_law(drawn.calibration[:, row], reference)


def test_correlated_detectors_depend_as_told():
    drawn = draw(DETECTORS)
    panel = np.moveaxis(drawn.calibration, 1, 0).reshape(3, -1)
    for row in panel:
        assert_law(row, "norm")
    assert np.abs(np.corrcoef(panel) - (0.4 * np.eye(3) + 0.6)).max() < 0.02
    targets = np.moveaxis(drawn.scores, 1, 0)[:, drawn.target]
    assert np.abs(targets.mean(axis=1) - [0, 1, 2]).max() < 0.08  # "member": clean items score higher
    assert np.abs(np.corrcoef(targets) - (0.4 * np.eye(3) + 0.6)).max() < 0.03
    lower = draw(dataclasses.replace(DETECTORS, null="nonmember"))
    assert np.moveaxis(lower.scores, 1, 0)[2, lower.target].mean() == pytest.approx(-2, abs=0.08)


@pytest.mark.slow("long")
def test_student_copula():
    """Student's margins, the same rank correlation, and extremes that come together more often."""
    kwargs = {"num_detectors": 2, "num_calibration": 100, "num_tests": 2, "correlation": 0.5}
    heavy, light = (draw(CorrelatedDetectors(degrees=d, **kwargs)).calibration for d in (3.0, None))
    assert_law(heavy[:, 0], stats.t(3).cdf)
    together = []
    for panel in (heavy, light):
        first, second = np.moveaxis(panel, 1, 0).reshape(2, -1)
        cut = np.quantile(first, 0.99)
        together.append(np.mean(second[first > cut] > cut))
    assert together[0] > together[1] + 0.1


def test_joint_labels():
    drawn = draw(JOINT)
    member = drawn.extra["member"]
    np.testing.assert_array_equal(drawn.target, ~member.any(axis=1))
    assert abs(drawn.target.mean() - 0.75**3) < 4 * np.sqrt(0.42 * 0.58 / (20 * DRAWS))
    assert_law(drawn.calibration, stats.norm(-2).cdf)
    assert_law(drawn.scores[member], stats.norm(-2).cdf)
    assert_law(drawn.scores[~member], "norm")


@pytest.mark.parametrize(
    ("law", "reference"),
    [
        ("normal", "norm"),
        ("exponential", "expon"),
        ("negative_exponential", lambda x: 1 - stats.expon.cdf(-x)),
        ("lognormal", stats.lognorm(1).cdf),
    ],
)
def test_paired_scores(law, reference):
    drawn = draw(dataclasses.replace(PAIRED, law=law))
    copies = (drawn.extra["knockoffs"], drawn.extra["calibration_knockoffs"], drawn.calibration)
    members = drawn.extra["members"] + 3, drawn.extra["members_knockoffs"]
    for values in (*copies, drawn.scores[~drawn.target], drawn.scores[drawn.target] + 3, *members):
        assert_law(values, reference)
    assert drawn.extra["knockoffs"].shape == (DRAWS, 10, 2)
    assert drawn.extra["calibration_knockoffs"].shape == (DRAWS, 5, 2)


def test_items_have_levels():
    drawn = draw(dataclasses.replace(PAIRED, signal=0.0, item_spread=2.0))
    pair = np.stack([drawn.scores.ravel(), drawn.extra["knockoffs"][..., 0].ravel()])
    assert np.abs(np.cov(pair) - [[5, 4], [4, 5]]).max() < 0.35


@pytest.mark.parametrize("law", ["normal", "exponential", "lognormal"])
def test_shards(law):
    drawn = draw(dataclasses.replace(SHARDS, law=law))
    shuffled, canonical = drawn.extra["shuffled"], drawn.extra["canonical"]
    assert shuffled.shape == (DRAWS, 20, 9)
    assert shuffled.std() == pytest.approx(1, rel=0.1)
    skew = stats.skew(shuffled, axis=None)
    assert abs(skew) < 0.05 if law == "normal" else skew < -1.5
    shift = canonical.mean(axis=0) - shuffled.mean()
    assert np.abs(shift[:5] - 2).max() < 0.3
    assert np.abs(shift[5:]).max() < 0.3
    np.testing.assert_allclose(drawn.scores[:, 0], -canonical.sum(axis=1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(drawn.calibration, -shuffled.sum(axis=1), rtol=1e-4, atol=1e-4)
    assert drawn.target.all()


@pytest.mark.parametrize("nothing", [{"signal": 0.0}, {"signal": 1.0, "shifted_share": 0.0}])
def test_shards_without_a_shift_are_null(nothing):
    assert not draw(SkewedShards(num_shards=4, num_shuffles=2, **nothing), 2).target.any()


SCORES = np.array([0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5])
MEMBER = SCORES < 4  # 4 members, 5 non-members; a score says which


def test_half_splits():
    """4 of 9 items calibrate; every item as often, every pair as often; the masks say who is a non-member."""
    drawn = draw(Pool(SCORES, MEMBER), 6_000)
    both = np.concatenate([drawn.calibration, drawn.scores], axis=1)
    np.testing.assert_array_equal(np.sort(both, axis=1), np.broadcast_to(SCORES, both.shape))
    assert drawn.calibration.shape[1] == 4
    np.testing.assert_array_equal(drawn.calibration_mask, drawn.calibration > 4)
    np.testing.assert_array_equal(drawn.target, drawn.scores < 4)
    inside = (drawn.calibration[:, None, :] == SCORES[None, :, None]).any(axis=2)
    share, pair = 4 / 9, 4 * 3 / (9 * 8)
    assert np.abs(inside.mean(axis=0) - share).max() < 4.5 * np.sqrt(share * (1 - share) / 6_000)
    pairs = (inside[:, :, None] & inside[:, None, :]).mean(axis=0)[np.triu_indices(9, 1)]
    assert np.abs(pairs - pair).max() < 4.5 * np.sqrt(pair * (1 - pair) / 6_000)
    members = drawn.extra["members"]
    np.testing.assert_array_equal(np.isnan(members), drawn.calibration_mask)
    np.testing.assert_array_equal(members[~drawn.calibration_mask], drawn.calibration[~drawn.calibration_mask])


def test_half_splits_on_known_members():
    drawn = draw(Pool(SCORES, MEMBER, null="member"), 50)
    np.testing.assert_array_equal(drawn.calibration_mask, drawn.calibration < 4)
    np.testing.assert_array_equal(drawn.target, drawn.scores > 4)
    assert drawn.extra == {}


def test_half_splits_of_panels():
    drawn = draw(Pool(np.stack([SCORES, 2 * SCORES]), MEMBER, null="member"), 20)
    np.testing.assert_array_equal(drawn.scores[:, 1], 2 * drawn.scores[:, 0])
    assert drawn.calibration.shape == (20, 2, 4)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        # n, null test items, targets: as large as 4 members and 5 non-members allow
        ({"test_members": 0.5}, (3, 1, 2)),
        ({"test_members": 1.0}, (4, 0, 4)),
        ({"test_members": 0.0}, (2, 2, 0)),
        ({"calibration_ratio": 0.5}, (2, 3, 2)),
        ({"test_members": 0.5, "calibration_ratio": 0.5, "null": "member"}, (2, 2, 2)),
    ],
)
def test_fixed_sizes(options, sizes):
    design = Pool(SCORES, MEMBER, **options)
    assert design.sizes() == sizes
    n, first, second = sizes
    drawn = draw(design, 3_000)
    null_is_high = design.null == "nonmember"
    assert drawn.calibration.shape == (3_000, n)
    assert ((drawn.calibration > 4) == null_is_high).all()
    np.testing.assert_array_equal(drawn.target, (drawn.scores > 4) != null_is_high)
    assert (drawn.target.sum(axis=1) == second).all()
    assert drawn.scores.shape[1] == first + second
    together = np.concatenate([drawn.calibration, drawn.scores], axis=1)
    assert all(len(set(row)) == len(row) for row in together[:200])
    used = np.array([(drawn.calibration == score).any(axis=1).mean() for score in SCORES])
    pool = (SCORES > 4) == null_is_high
    assert np.abs(used[pool] - n / pool.sum()).max() < 0.045
    left = drawn.extra.get("members")
    assert (0 if left is None else left.shape[1]) == (4 - second if null_is_high else 0)


BAD = [
    (lambda: NormalShift(num_tests=0), "num_tests must be a whole number of at least 1, got 0"),
    (lambda: NormalShift(num_calibration=2.0), "num_calibration must be a whole number"),
    (lambda: NormalShift(target_share=1.5), "target_share must be a finite number from 0 to 1, got 1.5"),
    (lambda: NormalShift(signal=float("nan")), "signal must be a finite number, got nan"),
    (lambda: NormalShift(spread=-1.0), "spread must be a finite number of at least 0"),
    (lambda: NormalShift(null="members"), "null must be one of 'nonmember', 'member'; got 'members'"),
    (lambda: NormalShift(labels="some"), "labels must be one of"),
    (lambda: Mixture(null_components=((1, 0),)), r"null_components must be rows \(weight, mean, sd\).*\(1, 2\)"),
    (lambda: Mixture(target_components=((0, 0, 1),)), "needs finite means, weights and sds"),
    (lambda: CorrelatedDetectors(signal=(1.0, 2.0)), "signal must be one finite number or 5"),
    (lambda: CorrelatedDetectors(correlation=-0.2), "correlation must be a finite number from 0 to 1"),
    (lambda: CorrelatedDetectors(degrees=3.0, law="uniform"), 'with degrees the law must be "normal"'),
    (lambda: JointLabels(num_models=0), "JointLabels: num_models"),
    (lambda: PairedScores(law="cauchy"), "law must be one of 'normal', 'exponential'"),
    (lambda: SkewedShards(signal=-1.0), "signal must be a finite number of at least 0"),
    (lambda: Pool([1.0, np.nan, 3.0], [1, 0, 1]), "1 of 3 items have a missing or infinite score"),
    (lambda: Pool([1.0, 2.0], [1, 0, 1]), r"one label an item, shape \(2,\); got shape \(3,\)"),
    (lambda: Pool([1.0, 2.0], [1, 2]), r"True and False \(or 1 and 0\), got \[1, 2\]"),
    (lambda: Pool([1.0, 2.0], [1, 1]), "all 2 items are members; a pool needs both"),
    (lambda: Pool([1.0, 1.0 + 1e-12, 2.0], [1, 0, 0]), "differ by less than single precision tells apart"),
    (lambda: Pool(["a", "b"], [1, 0]), "scores must be numbers"),
    (lambda: Pool(SCORES, MEMBER, calibration_ratio=100.0), "the pool has too few items"),
    (lambda: Pool(SCORES, MEMBER, test_members=2), "test_members must be a finite number from 0 to 1"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_designs_are_refused(make, message):
    with pytest.raises(tdd.InputError, match=message):
        make()


def test_a_changed_pool_counts_anew():
    pool = Pool(SCORES, MEMBER)
    changed = dataclasses.replace(pool, is_member=SCORES < 7)
    assert (pool.num_members, changed.num_members) == (4, 7)
    with pytest.raises(tdd.InputError, match="too few"):
        dataclasses.replace(pool, calibration_ratio=50.0)
    assert jnp.asarray(pool.scores).dtype == jnp.float32
