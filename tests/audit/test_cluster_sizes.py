"""The check of cluster sizes: its level where clusters are exchangeable, and what it finds where they are not."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from tdd.audit.assemble import failures
from tdd.audit.checks import cluster_sizes
from tdd.audit.select import select
from tdd.records import Evidence

DRAWN = 300


def evidence(rng, *, own=20, test=20, large=0.3, tilt=1.0):
    """Clusters of 1 or 6 items; items of large ones score `tilt` lower; a share `large` of candidates' is large."""

    def role(count, share, name):
        sizes = np.where(rng.uniform(size=count) < share, 6, 1)
        number = np.repeat(np.arange(count), sizes)
        return rng.normal(size=number.size) - tilt * (sizes[number] > 1), tuple(f"{name}{i}" for i in number)

    own_scores, own_clusters = role(own, 0.3, "known")
    scores, clusters = role(test, large, "candidate")
    return Evidence(own_scores, scores, names=("loss",), clusters=clusters, calibration_clusters=own_clusters)


def p_values(**setting):
    rng = np.random.default_rng(0)
    found = [cluster_sizes(evidence(rng, **setting), "cluster", seed=i) for i in range(DRAWN)]
    return [np.asarray([getattr(one, name) for one in found]) for name in ("p_value", "p_related", "p_differ")]


@pytest.mark.slow("repetitions")
@pytest.mark.guarantee(checks=2)
def test_level_where_clusters_are_exchangeable(false_alarm_level):
    """Size goes with the score, but alike in both roles; and the other way round."""
    for setting in ({"tilt": 1.0}, {"tilt": 0.0, "large": 0.9}):
        p, related, differ = p_values(**setting)
        alarms = (p <= 0.05).sum()
        assert stats.binom.sf(alarms - 1, DRAWN, 0.05) > false_alarm_level
        single = differ if setting["tilt"] == 0.0 else related  # the twin: one of the two tests alone
        assert stats.binom.sf((single <= 0.05).sum() - 1, DRAWN, 0.05) < 1e-6


def test_what_it_finds():
    found = cluster_sizes(evidence(np.random.default_rng(1), own=60, test=60, large=0.9, tilt=3), "cluster", seed=0)
    assert found.p_value == found.p_related == found.p_differ == 0.001
    assert found.correlation < -0.5
    assert found.mean_candidates > 4 > found.mean_calibration
    assert "the clusters are not exchangeable" in found.warning


def test_correlation_is_spearmans_over_scored_clusters():
    rng = np.random.default_rng(2)
    given = evidence(rng)
    given.calibration[3] = np.nan
    names = np.asarray(given.calibration_clusters)
    known = ~np.isnan(given.calibration)
    sizes, means = zip(
        *(((names[known] == c).sum(), given.calibration[known & (names == c)].mean()) for c in set(names[known])),
        strict=True,
    )
    found = cluster_sizes(given, "cluster", seed=0)
    assert found.correlation == pytest.approx(stats.spearmanr(sizes, means).statistic)
    assert found.mean_calibration == pytest.approx(np.mean(sizes))


def test_equal_sizes_tell_nothing():
    given = evidence(np.random.default_rng(3), large=0.0)
    number = np.arange(given.calibration.size)
    found = cluster_sizes(
        dataclasses.replace(given, calibration_clusters=tuple(f"one {i}" for i in number)), "cluster", seed=0
    )
    assert (found.p_value, found.p_related, found.p_differ, found.correlation) == (1, 1, 1, 0)


def test_without_clusters_there_is_no_check():
    assert (
        cluster_sizes(dataclasses.replace(evidence(np.random.default_rng(0)), clusters=()), "cluster", seed=0) is None
    )


def test_items_are_decided_on_only_where_sizes_are_alike():
    """One passage of each known book and whole candidate books: size and score cannot be compared, sizes can."""
    rng = np.random.default_rng(0)
    known, books = tuple(f"k{i}" for i in range(30)), tuple(f"c{i}" for i in np.repeat(np.arange(10), 9))
    given = Evidence(
        scores=rng.normal(size=90), calibration=rng.normal(size=30), clusters=books, calibration_clusters=known
    )
    found = [cluster_sizes(given, unit, seed=0).p_value for unit in ("item", "cluster", "drawn")]
    assert found == [0.001, 1, 1]


def test_the_verdict_is_withheld_with_the_reason():
    given = evidence(np.random.default_rng(1), own=60, test=60, large=0.9, tilt=3)
    names = [f"k{c}" for c in given.calibration_clusters] + list(given.clusters)
    roles = ["calibration"] * given.calibration.size + ["candidate"] * given.scores.size
    columns = {
        "id": [str(i) for i in range(len(names))],
        "role": roles,
        "book": names,
        "loss": np.concatenate([given.calibration, given.scores]).tolist(),
    }
    audit = select(columns, alpha=0.2, group_field="book", method="ptdi:unit=item")
    assert not audit.run["verdict"]["stands"]
    assert "the clusters are not exchangeable" in audit.run["verdict"]["failed"][0]
    calm = evidence(np.random.default_rng(4), tilt=0.0)
    assert (
        failures(
            {"cluster_sizes": cluster_sizes(calm, "cluster", seed=0)},
            dataclasses.make_dataclass("D", ["num_calibration"])(20),
        )
        == []
    )
