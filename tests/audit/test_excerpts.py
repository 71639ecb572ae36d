"""What a reader checks by eye: excerpts of the selected texts, and examples of what checks found."""

import unicodedata

import numpy as np
import pytest

from tdd.audit.excerpts import LENGTH, MOST, excerpt, with_excerpts
from tdd.audit.inputs import Inputs, Role, knockoff_column
from tdd.records import Texts
from tdd.runs.folder import Audit


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "x" * 160,
        "x" * 161,
        "line\nbreak\tand  blanks ",
        "\u202eevil\u2066\u200b\ufeff",
        "\x1b[2J\x00\x9b\ud800",
        "\u0301" * 500,
    ],
)
def test_one_line_of_printable_characters(text):
    shown = excerpt(text)
    assert len(shown) <= LENGTH
    assert all(unicodedata.category(c)[0] != "C" and unicodedata.category(c) not in ("Zl", "Zp") for c in shown)
    assert shown.endswith("…") == (len(" ".join(text.split())) > LENGTH)


def test_what_is_plain_stays():
    assert excerpt("naïve  café\n日本語 שלום") == "naïve café 日本語 שלום"
    assert excerpt("\x1b[2J") == "\ufffd[2J"
    assert excerpt("a" * 10**7, 5) == "aaaa…"
    assert excerpt(" " * 10**5 + "late") == "…", "what lies beyond is not read"


def audit_of(checks=None, *, selected=5, total=8, stands=True):
    rng = np.random.default_rng(0)
    p = rng.permutation(total) / total
    chosen = p < np.sort(p)[selected] if selected < total else np.ones(total, bool)
    items = {
        "id": np.array([f"c{i}" for i in range(total)], object), "loss": p + 1, "p_value": p, "adjusted": p,
        "selected": chosen,
    }  # fmt: skip
    run = {
        "verdict": {"failed": [] if stands else ["a reason"]},
        "decision": {"num_selected": int(chosen.sum()), "columns": ["loss"], "null": "nonmember"},
        "checks": checks or {},
    }
    known = Texts(tuple(f"k{i}" for i in range(6)), tuple(f"known {i}" for i in range(6)))
    suspects = Texts(tuple(f"c{i}" for i in range(total)), tuple(f"text {i}\n<b>" for i in range(total)))
    copies = Texts(known.ids, tuple(f"copy {i}" for i in range(6)))
    roles = {Role("candidate"): suspects, Role("calibration"): known, Role("calibration", 1): copies}
    return Audit(run, items, {}), Inputs(roles, ("A", *"BBB", *"CCCC")[:total], ("X", "Y", "Y", "Z", "Z", "Z"))


TABLES = {
    "candidate": {"loss": np.array([0.0, 1, 0, 2, 0, 0, 0, 0])},
    "calibration": {"loss": np.zeros(6), knockoff_column("loss", 1): np.array([0, 1, -3, 4, 0, np.nan])},
}


def test_the_most_extreme_selected_texts():
    audit, inputs = audit_of()
    found = with_excerpts(audit, inputs, TABLES, ["loss"]).run["excerpts"]
    order = [int(i) for i in np.argsort(audit.items["p_value"])[:5]]
    assert found == [[f"c{i}", f"text {i} <b>"] for i in order]
    audit, inputs = audit_of(selected=250, total=250)
    assert len(with_excerpts(audit, inputs, TABLES, ["loss"]).run["excerpts"]) == MOST


@pytest.mark.parametrize(("stands", "selected", "texts"), [(False, 5, True), (True, 0, True), (True, 5, False)])
def test_no_excerpts_without_a_verdict_a_selection_or_texts(stands, selected, texts):
    audit, inputs = audit_of(selected=selected, stands=stands)
    assert "excerpts" not in with_excerpts(audit, inputs, TABLES, ["loss"], texts=texts).run


FOUND = {
    "preparation": (
        {"found": [["begin with a digit", 3, 0, 0.001, [["k1", "1 known"]], [["c2", "text"]]]]},
        [("calibration", "k1", "1 known"), ("candidate", "c2", "text")],
    ),
    "blind_baseline": (
        {"example": ["k1", "c2"]},
        [("calibration", "k1", "known 1"), ("candidate", "c2", "text 2 <b>")],
    ),
    "overlap": ({"example": ["k1", "c2"]}, [("calibration", "k1", "known 1"), ("candidate", "c2", "text 2 <b>")]),
    "duplicates": (
        {
            "pairs": [
                {"calibration": "k3", "candidate": "c0", "similarity": 1},
                {"calibration": "k1", "candidate": "c1"},
            ]
        },
        [("calibration", "k3", "known 3"), ("candidate", "c0", "text 0 <b>")],
    ),
    "repeated_value": (
        {"role": "candidates", "score": "loss", "value": 0.0},
        [("candidate", "c0", "text 0 <b>"), ("candidate", "c2", "text 2 <b>")],
    ),
    "cluster_sizes": (
        {},
        [("calibration", "k3", "one of 3 items of Z: known 3"), ("candidate", "c4", "one of 4 items of C: text 4 <b>")],
    ),
    "symmetry": ({}, [("known non-member", "k3", "known 3"), ("its knockoff 1", "k3", "copy 3")]),
}


@pytest.mark.parametrize("check", FOUND)
def test_two_examples_of_what_a_check_found(check):
    finding, shown = FOUND[check]
    audit, inputs = audit_of({check: {"warning": "found something", **finding}}, stands=False)
    rows = with_excerpts(audit, inputs, TABLES, ["loss"]).run["examples"][check]
    assert [(row["role"], row["id"], row["text"]) for row in rows] == shown
    audit, inputs = audit_of({check: {"warning": "", **finding}})
    assert "examples" not in with_excerpts(audit, inputs, TABLES, ["loss"]).run


def test_checks_without_examples_add_none():
    checks = {"resolution": {"warning": "few"}, "overlap": {"warning": "w", "example": []}}
    audit, inputs = audit_of(checks, stands=False)
    assert "examples" not in with_excerpts(audit, inputs, TABLES, ["loss"]).run
