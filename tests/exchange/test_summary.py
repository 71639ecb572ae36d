"""What a run says: never more than it shows, and every reason for doubt."""

import math

import exchange_runs
import numpy as np
import pytest

from tdd.runs.display import format_p_value


@pytest.fixture(scope="module")
def found():
    return exchange_runs.entry("quiz", 2.0)


@pytest.fixture(scope="module")
def nothing():
    return exchange_runs.entry("other", 0.0, seed=3)


def said(*entries, **options):
    return exchange_runs.finish(entries, **options)


def warned(one, **options):
    run = said(one, **options)
    return " ".join([*run["warnings"], *run["data"][0]["warnings"]])


def test_a_rejection_says_what_it_shows(found):
    run = said(found)
    said_first = "Evidence at level 5% that the model depends on the published order of the data set quiz (p = "
    assert run["outcome"].startswith(said_first)
    assert "If that order is random, and the settings were fixed beforehand" in run["outcome"]
    assert "trained" not in run["outcome"]
    assert run["warnings"] == run["data"][0]["warnings"] == []


def test_no_rejection_shows_nothing(nothing):
    outcome = said(nothing)["outcome"]
    assert outcome.startswith("No dependence of the model on the published order of the data set other was found")
    assert "does not show that the data set was absent" in outcome


def test_an_asymptotic_test_says_so():
    one = exchange_runs.entry(shift=2.0, test="t", r=24)
    assert "in the limit of many shards" in said(one)["outcome"]
    assert warned(one) == ""


def test_no_p_value(nothing):
    lost = nothing | {"p_value": math.nan, "log_p_value": math.nan}
    assert "cannot be said: no p-value" in said(lost)["outcome"]


def test_several_data_sets(found, nothing):
    many = [found | {"name": f"quiz {i}", "sha256": str(i)} for i in range(10)]
    run = said(*many, nothing)
    assert "of 10 of 11 data sets: quiz 0," in run["outcome"]
    assert "and 2 more" in run["outcome"]
    assert "fraction of data sets without such a dependence among those listed is at most 5%" in run["outcome"]
    assert said(nothing, nothing | {"name": "b", "sha256": "b"})["outcome"].startswith(
        "No dependence of the model on the published order of 2 data sets was found"
    )


def test_data_sets_without_a_verdict_are_no_negative_results(found, nothing):
    doubted = found | {"structure": found["structure"] | {"p_value": 0.004}, "sha256": "a"}
    lost = nothing | {"p_value": math.nan, "log_p_value": math.nan, "name": "lost", "sha256": "b"}
    assert said(doubted, lost)["outcome"] == "No verdict is given on any of 2 data sets: see the warnings."
    assert "published order of the only data set with a verdict: quiz. If" in said(doubted, lost, found)["outcome"]
    outcome = said(doubted, lost, nothing)["outcome"]
    assert outcome.startswith("No dependence of the model on the published order of 1 data set was found")
    assert outcome.endswith("No verdict is given on 2 of 3 data sets: see the warnings.")


def test_order_that_is_visibly_not_random(found):
    tests = [
        {"name": "lengths", "observed": 0.01, "expected": 0.0, "p_value": 0.6},
        {"name": "field topic", "observed": 0.9, "expected": 0.1, "p_value": 0.002},
    ]
    one = found | {"structure": found["structure"] | {"p_value": 0.004, "tests": tests}}
    text = warned(one)
    assert "does not look random even without the model (p = 0.004)" in text
    assert "90% of neighbours have the same value of field topic (10% in shuffles)" in text
    assert "a model that never saw these examples may prefer such an order" in text
    assert said(one)["outcome"].startswith("No verdict on the data set quiz: its published order does not look random")
    assert "depends" not in said(one)["outcome"]
    assert "look random" not in said(found | {"structure": one["structure"] | {"p_value": 0.006}})["outcome"]


def test_sorted_order(found):
    one = found | {"structure": found["structure"] | {"sorted": "by length, ascending"}}
    assert "the published order is sorted (by length, ascending)" in warned(one)


def test_control():
    one = exchange_runs.entry(shift=2.0, control=2.0)
    text = warned(one, control=True)
    assert "the negative control depends on the published order too" in text
    assert "is preferred by the control model too (see the warnings)" in said(one, control=True)["outcome"]
    quiet = exchange_runs.entry(shift=2.0, control=0.0)
    assert warned(quiet, control=True) == ""
    points = " ".join(said(quiet, control=True)["open_points"])
    assert "A control that finds nothing does not prove" in points
    assert "No negative control" not in points
    lost = quiet | {"control": quiet["control"] | {"p_value": None, "log_p_value": None}}
    assert "the negative control has no p-value" in warned(lost, control=True)


def test_the_model_as_its_own_control(found, monkeypatch):
    monkeypatch.setattr(exchange_runs, "CONTROL", exchange_runs.MODEL)
    assert "the control is the model itself" in warned(found, control=True)


def test_duplicates(found):
    copies = found["duplicates"] | {"num_within_shards": 3, "share": 0.25}
    text = warned(found | {"duplicates": copies})
    assert "3 of 48 examples repeat another of their shard" in text
    assert "25% of the examples have an exact or a near duplicate" in text
    assert "at least 25%" in warned(found | {"duplicates": copies | {"complete": False}})


def test_data_sets_that_are_the_same(found):
    assert "counted twice" in " ".join(said(found, found | {"name": "b"})["warnings"])


def test_t_on_skewed_and_on_few_shards():
    skewed = np.where(np.arange(30) == 3, -30.0, 1.0)
    one = exchange_runs.entry(shift=skewed, test="t", r=30)
    assert one["skewed"]
    assert "a long left tail" in warned(one)
    assert "relies on many shards and there are 8" in warned(exchange_runs.entry(test="t"))
    assert "left tail" not in warned(exchange_runs.entry(shift=skewed, r=30))


def test_p_values_that_cannot_be_small(found):
    one = exchange_runs.entry(shift=2.0, test="permutation", k=9)
    assert "cannot give a p-value below 0.1, so it cannot reject" in warned(one)
    run = said(exchange_runs.entry(shift=2.0, test="permutation", k=39), found | {"name": "b", "sha256": "b"})
    assert "alone among several data sets" not in " ".join(run["data"][0]["warnings"])  # 1/40 = 0.05/2: it can
    assert "cannot give" not in warned(found)


@pytest.mark.parametrize(("rule", "needed"), [("besag_clifford", 19), ("e_process", 4)])
def test_sequential_rules_that_cannot_reject(rule, needed):
    short, enough = (exchange_runs.entry(k=1, r=3, rule=rule) | {"num_shuffles": k} for k in (needed - 1, needed))
    if rule == "e_process":
        from tdd.procedures.exchangeability import shuffles_needed

        assert shuffles_needed(3, 0.05, "e_process") == needed
    assert f"with at most {needed - 1} shuffles it cannot reject: {rule} needs {needed} at least" in warned(short)
    assert "cannot reject" not in warned(enough)


def test_looks_share_the_level():
    """19 shuffles reach .05 at a look that has the whole level; the last of five looks needs more."""
    one = exchange_runs.entry(k=3, r=3, rule="spending")
    short, enough = (one | {"num_shuffles": k} for k in (19, 40))
    assert "with at most 19 shuffles it cannot reject: the looks of spending" in warned(short, test="permutation")
    assert "cannot reject" not in warned(enough, test="permutation")
    lost = one | {"num_masked": 3, "p_value": math.nan, "log_p_value": math.nan}
    assert "cannot reject" not in warned(lost)


def test_a_rule_that_cannot_reject_with_any_number_of_shuffles():
    one = exchange_runs.entry(k=1, r=2, rule="spending") | {"num_shards": 1}
    assert "cannot reject with any number of shuffles" in warned(one, test="t")


def test_a_p_value_close_to_its_level(found):
    assert "close to the level (0.03 against 0.05)" in warned(found | {"p_value": 0.03, "log_p_value": math.log(0.03)})
    assert "close" not in warned(found | {"p_value": 0.009, "log_p_value": math.log(0.009)})


def test_shards_left_out_and_long_examples(found):
    one = exchange_runs.entry(shift=np.array([np.nan, *[2.0] * 7]))
    assert "1 of 8 shards have no log-probability" in warned(one)
    assert "neighbours: 4 of 48" in warned(found | {"num_long_examples": 4})


def test_orders_that_are_one_text_to_the_model(found):
    few = found | {"calls": found["calls"] | {"sequences": 8}}
    assert "88 orders are only 8 different texts" in warned(few)
    two = few | {"permuted_a_shard": [2, 2], "calls": few["calls"] | {"sequences": 16}}
    assert warned(two) == ""  # shards of two examples have two orders


@pytest.mark.parametrize(
    ("p", "log_p", "words"),
    [
        (1.0, 0.0, "1"),
        (0.5, None, "0.5"),
        (0.0123, None, "0.012"),
        (9.96e-4, None, "1.0e-3"),
        (1e-5, None, "1.0e-5"),
        (0.0, -1000 * math.log(10), "1.0e-1000"),
        (0.0, None, "0"),
        (None, None, "unknown"),
        (math.nan, math.nan, "unknown"),
    ],
)
def test_p_values_in_words(p, log_p, words):
    assert format_p_value(p, log_p) == words


@pytest.mark.parametrize("level", [0.05, 0.1, 0.025, 1e-4, 0.2, 1 / 3])
def test_a_p_value_stands_on_its_side_of_the_level(level):
    for p in (level, level * (1 + 1e-9), level * (1 - 1e-9), level * 1.004, np.nextafter(level, 1)):
        assert (float(format_p_value(p, level=level)) <= level) == (p <= level)
        assert (float(format_p_value(p, np.log(p), level)) <= level) == (p <= level)
    assert format_p_value(0.0, -1e4, level=level) == format_p_value(0.0, -1e4)
