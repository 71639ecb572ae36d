"""Marks of whole items: every change of preparation is found, and nothing where both roles were prepared alike."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.stats import binom, fisher_exact

from tdd.audit import preparation as module
from tdd.audit.assemble import Shown, assemble
from tdd.audit.blind_baseline import blind_baseline
from tdd.audit.decide import choose, evidence_of
from tdd.audit.preparation import Marks, preparation, text_marks
from tdd.demo.data import load_calibration, load_candidates

TEXTS = [*load_calibration().texts, *load_candidates().texts]

CHANGES = {
    "the first word dropped": lambda text: text.split(" ", 1)[-1],
    "the first letter in lower case": lambda text: text[:1].lower() + text[1:],
    "a byte-order mark": lambda text: "\ufeff" + text,
    "a soft hyphen": lambda text: text[:50] + "\u00ad" + text[50:],
    "a zero-width blank": lambda text: text[:20] + "\u200b" + text[20:],
    "no last full stop": lambda text: text.rstrip("."),
    "cut at 90%": lambda text: text[: int(0.9 * len(text))],
    "a line end": lambda text: text + "\n",
    "a blank in front": lambda text: " " + text,
    "carriage returns": lambda text: text.replace(". ", ".\r\n", 1),
    "decomposed": lambda text: text[:10] + "e\u0301" + text[10:],
    "read in the wrong encoding": lambda text: text + " caf\u00c3\u00a9.",
    "references": lambda text: text.replace(" and ", " &amp; ", 1) if " and " in text else text + " &amp;c.",
    "two blanks": lambda text: text.replace(". ", ".  "),
    "curly quotation marks": lambda text: "\u201c" + text[:30] + "\u201d" + text[30:],
    "at most 200 characters": lambda text: text[:200],
}


def divided(seed, size, change=lambda text: text):
    """(calibration items, changed; candidates) of one population."""
    order = np.random.default_rng(seed).permutation(len(TEXTS))[: 2 * size]
    return [change(TEXTS[row]) for row in order[:size]], [TEXTS[row] for row in order[size:]]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_found(change):
    for size in (150, 40):
        found = [preparation(*divided(seed, size, change), seed=seed, level=0.0025) for seed in range(2)]
        assert all(one.warning for one in found)
        assert {one.p_value for one in found} == {1 / 2000}


def test_copies_in_one_role_are_found():
    calibration, candidates = divided(0, 100)
    found = preparation(calibration + calibration[:8], candidates, seed=0, level=0.0025)
    assert "16 of 108 calibration items and 0 of 100 candidates are copies of another item" in found.warning
    both = preparation(calibration + candidates[:8], candidates + calibration[:8], seed=0, level=0.0025)
    assert not both.warning  # copies across the roles are for `sharing`


def test_a_change_of_some_texts_is_found():
    calibration, candidates = divided(0, 150)
    calibration[:15] = [text + "\n" for text in calibration[:15]]
    assert "15 of 150 calibration items and 0 of 150 candidates end with white space" in preparation(
        calibration, candidates, seed=0, level=0.0025
    ).warning  # fmt: skip


def false_alarms(grouped, level, repetitions=150):
    """Warnings where units of three texts alike are divided at random, with and without their groups."""
    count = 0
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        texts = [text for text in np.array(TEXTS, object)[rng.permutation(len(TEXTS))[:24]] for _ in range(3)]
        groups = np.repeat(np.arange(24), 3)
        known = groups < 8
        pair = (groups[known], groups[~known]) if grouped else None
        parts = [[text for text, one in zip(texts, known, strict=True) if one == side] for side in (True, False)]
        count += bool(preparation(*parts, seed=seed, level=level, groups=pair).warning)
    return count


def test_false_alarms_are_rare_and_groups_count():
    """At level .05, more than 19 alarms of 150 have a chance below 1e-4; texts taken one by one raise far more."""
    assert binom.sf(19, 150, 0.05) < 1e-4
    assert false_alarms(True, 0.05) <= 19
    assert false_alarms(False, 0.05) > 19


def test_all_marks_have_the_level_together():
    """Forty independent marks at level .05: without the family most audits would warn."""
    rng = np.random.default_rng(0)

    def random_marks(items):
        return Marks(("m",) * 40, rng.random((40, len(items))) < 0.3, ("m",) * 40, lambda mark, item: "")

    alarms = sum(
        bool(preparation(["a"] * 30, ["b"] * 40, seed=seed, level=0.05, marks=random_marks).warning)
        for seed in range(150)
    )
    assert alarms <= 19


@pytest.mark.parametrize(("total", "size", "known"), [(7, 30, 12), (1, 20, 10), (19, 20, 5), (10, 20, 10)])
def test_surprise_is_fishers(total, size, known):
    surprise = module._fisher(total, size, known)
    for k in range(max(0, total + known - size), min(total, known) + 1):
        table = [[k, known - k], [total - k, size - known - total + k]]
        assert np.exp(-surprise[k]) == pytest.approx(fisher_exact(table)[1], rel=1e-9)


def test_the_message_shows_both_sides():
    calibration, candidates = divided(1, 60, CHANGES["a byte-order mark"])
    found = preparation(calibration, candidates, seed=0, level=0.0025)
    assert len(found.found) <= 3
    first = found.found[0]
    assert (first.num_calibration, first.num_candidates) == (60, 0)
    assert len(first.calibration) == len(first.candidates) == 2
    assert all('"\\ufeff' in excerpt for _, excerpt in first.calibration)
    assert "prepare the calibration items again" in found.warning
    assert found.warning.isprintable()
    assert found.finding.endswith(
        "60 of 60 calibration items and 0 of 60 candidates begin with an invisible character (p = 0.0005)"
    )
    end = preparation(*divided(1, 60, CHANGES["no last full stop"]), seed=0).found[0]
    assert end.mark.startswith("end with")
    assert end.candidates[0][1].endswith('."')


def test_too_few_units_are_said():
    texts = TEXTS[:40]
    found = preparation(texts[:3], texts[3:8], seed=0, level=0.0025)
    assert "the smaller role has 3 items" in found.unchecked
    assert found.warning == f"not tested: {found.unchecked}"
    assert preparation(texts[:3], texts[3:40], seed=0, level=0.0025).unchecked == ""
    grouped = preparation(texts[:20], texts[20:], seed=0, groups=([0] * 20, list(range(20))))
    assert "has 1 group, too few" in grouped.unchecked
    assert preparation([], texts, seed=0).unchecked


def test_same_seed_same_result_and_large_inputs_are_sampled(monkeypatch):
    calibration, candidates = divided(3, 100, CHANGES["a line end"])
    assert preparation(calibration, candidates, seed=7) == preparation(calibration, candidates, seed=7)
    monkeypatch.setattr(module, "_MAX_ITEMS", 60)
    found = preparation(calibration[:20], candidates, seed=0)
    assert (found.num_calibration, found.num_candidates) == (20, 40)
    assert found.warning


def test_marks_of_texts():
    marks = text_marks(["", "\u201cYes.\u201d", "na\u00efve\tword ,", "1. A <b>b</b> &amp; http://x.org\r\n"])
    said = [{phrase for phrase, has in zip(marks.phrases, marks.has[:, item], strict=True) if has} for item in range(4)]
    assert {"begin with white space", "end with white space"} <= said[0]
    assert {"begin with a quotation mark", "end with the end of a sentence"} <= said[1]
    assert {"have a letter beyond ASCII", "have a tab", "have a space before a punctuation mark"} <= said[2]
    assert {"have a tag", "have a character reference", "have a web address", "have a carriage return"} <= said[3]


def test_nine_texts_of_another_source_are_not_called_checked():
    known, candidates = TEXTS[:9], TEXTS[9:49]
    rng = np.random.default_rng(0)
    tables = {"calibration": {"loss": rng.normal(size=9)}, "candidate": {"loss": rng.normal(size=40)}}
    choices = choose("ptdi", alpha=0.2, delta=0.05, seed=0, null=None, others={}, out=None)
    evidence = evidence_of(choices.procedure, tables, ["loss"], knockoffs=[], clusters=(), calibration_clusters=())
    items = Shown([str(i) for i in range(40)], tables["candidate"], np.full(40, -1), {"id": np.arange(9)}, None, ())
    checks = {"blind_baseline": blind_baseline(known, candidates, seed=0, level=0.0025)}
    run = assemble(choices, evidence, items, options={}, inputs={}, checks=checks).run
    assert run["outcome"].startswith("Not tested: whether words and length alone")
    assert "at least 10 texts" in run["verdict"]["unchecked"][0]
    checks["blind_baseline"] = dataclasses.replace(checks["blind_baseline"], unchecked="", warning="")
    assert not assemble(choices, evidence, items, options={}, inputs={}, checks=checks).run["verdict"]["unchecked"]
    assert json.dumps(run)
