"""Every procedure through `tdd.select`: the decision of the direct call, the right words, clear errors."""

import json
import operator

import numpy as np
import pytest

import tdd
from tdd.cli import main
from tdd.procedures.ptdi import PROPORTIONS

N, M = 80, 40


@pytest.fixture(scope="module")
def columns():
    """Candidates of which the first half are members, and calibration items of both kinds; three detectors."""
    rng = np.random.default_rng(0)
    out = {"member": np.arange(M) < M // 2}
    shift = np.where(out["member"], -4.0, 0.0)
    out["scores"] = rng.normal(size=(3, M)) + shift
    out["nonmembers"] = rng.normal(size=(3, N))
    out["members"] = rng.normal(size=(3, N)) - 4
    out["knockoffs"] = rng.normal(size=(M, 5))
    out["calibration knockoffs"] = rng.normal(size=(N, 5))
    return out


def table(columns, calibration="nonmembers", groups=None):
    rows = []
    for i in range(N):
        rows.append(
            {"id": f"c{i}", "role": "calibration", "label": int(calibration == "members")}
            | {f"d{k}": columns[calibration][k, i] for k in range(3)}
            | {f"k{j}": columns["calibration knockoffs"][i, j] for j in range(5)}
        )
    for i in range(M):
        rows.append(
            {"id": f"t{i}", "role": "candidate", "label": int(columns["member"][i])}
            | {f"d{k}": columns["scores"][k, i] for k in range(3)}
            | {f"k{j}": columns["knockoffs"][i, j] for j in range(5)}
        )
    if groups:
        for i, row in enumerate(rows):
            row["book"] = f"book {row['role']} {i // groups}"
    return rows


DETECTORS = ("d0", "d1", "d2")
KNOCKOFFS = tuple(f"k{j}" for j in range(5))


def chosen(audit):
    return np.asarray(audit.items["selected"])


@pytest.mark.parametrize("combine", ["pooled_rank", "cauchy"])
def test_td4eval(columns, combine):
    audit = tdd.select(
        table(columns, "members"), alpha=0.2, score=DETECTORS, method=f"td4eval:combine={combine}", label_field="label"
    )
    direct = tdd.td4eval(columns["members"], columns["scores"], alpha=0.2, combine=combine)
    np.testing.assert_array_equal(chosen(audit), direct.selected)
    decision = audit.run["decision"]
    assert decision["null"] == "member"
    assert decision["columns"] == list(DETECTORS)
    assert "selected as presumed clean" in audit.run["outcome"]
    assert decision["truth"]["power"] > 0.5
    assert decision["truth"]["num_false"] == int((chosen(audit) & columns["member"]).sum())
    assert any("weight of each detector" in fact for fact, _ in decision["facts"])
    warned = any("no guarantee" in warning for warning in audit.run["warnings"])
    assert warned == (combine == "cauchy")


@pytest.mark.parametrize("method", ["jmcs", "jecs"])
@pytest.mark.slow("long")
def test_joint(columns, method):
    audit = tdd.select(table(columns, "members"), alpha=0.2, score=DETECTORS, method=method, label_field="label")
    direct = getattr(tdd, method)(columns["members"], columns["scores"], alpha=0.2)
    np.testing.assert_array_equal(chosen(audit), direct.selected)
    assert chosen(audit).any()
    if method == "jecs":
        assert any("asymptotic" in warning for warning in audit.run["warnings"])
        assert any("in the limit of many items" in warning for warning in audit.run["warnings"])


@pytest.mark.parametrize("rule", ["multi", "ktd", "derandomized", "conformal"])
def test_ktd(columns, rule):
    audit = tdd.select(table(columns), alpha=0.3, score="d0", method=f"ktd:rule={rule}", knockoffs=KNOCKOFFS)
    how = {}
    if rule == "conformal":
        how = {"calibration": columns["nonmembers"][0], "calibration_knockoffs": columns["calibration knockoffs"]}
    direct = tdd.ktd(columns["scores"][0], columns["knockoffs"], alpha=0.3, rule=rule, **how)
    np.testing.assert_array_equal(chosen(audit), direct.selected)
    assert chosen(audit).any()
    assert audit.run["checks"]["symmetry"]["num_items"] == N
    assert "statistic" in audit.items


def test_knockoffs_need_no_calibration(columns, tmp_path, capsys):
    rows = [
        {key: value for key, value in row.items() if key != "role"}
        for row in table(columns)
        if row["role"] == "candidate"
    ]
    audit = tdd.select(rows, alpha=0.3, score="d0", method="ktd", knockoffs=KNOCKOFFS, out=tmp_path / "run")
    np.testing.assert_array_equal(
        chosen(audit), tdd.ktd(columns["scores"][0], columns["knockoffs"], alpha=0.3).selected
    )
    assert audit.run["decision"]["num_calibration"] == 0
    assert audit.run["checks"] == {}
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "knockoffs an item" in capsys.readouterr().out


@pytest.mark.slow("long")
def test_missing_knockoffs_are_counted(columns):
    rows = table(columns)
    rows[3]["k1"] = rows[N + 5]["k1"] = None
    how = {"alpha": 0.3, "score": "d0", "knockoffs": KNOCKOFFS}
    audit = tdd.select(rows, method="ktd:rule=conformal", **how)
    decision = audit.run["decision"]
    assert decision["num_missing"] == decision["num_missing_calibration"] == 1
    assert decision["num_calibration"] == audit.run["checks"]["effective_calibration"]["size"] == N - 1
    assert any("1 candidate has no score (one of their scores is NaN)" in text for text in audit.run["warnings"])
    for row in rows[:N]:
        row |= dict.fromkeys(KNOCKOFFS)
    assert "symmetry" not in tdd.select(rows, method="ktd", **how).run["checks"]


@pytest.mark.slow("long")
def test_conformal_knockoffs_estimate_as_told(columns):
    how = {"alpha": 0.3, "score": "d0", "knockoffs": KNOCKOFFS}
    audit = tdd.select(table(columns), method="ktd:rule=conformal,proportion=none", **how)
    assert "alpha * m0/m" in audit.run["decision"]["guarantee"]["controls"]
    audit = tdd.select(table(columns), method="ktd:rule=conformal,proportion=subtraction", **how)
    assert "on -W" in audit.run["decision"]["guarantee"]["source"]
    with pytest.raises(tdd.InputError, match="needs known members; give a table of members or a member role"):
        tdd.select(table(columns), method="ktd:rule=conformal,proportion=moment", **how)


@pytest.mark.parametrize("proportion", PROPORTIONS)
@pytest.mark.slow("long")
def test_conformal_knockoffs_with_every_estimate(columns, proportion, tmp_path, capsys):
    """The call, the table in Python and the command decide alike; the moments read the members' own knockoffs."""
    rng = np.random.default_rng(4)
    members, copies = rng.normal(size=30) - 4, rng.normal(size=(30, 5))
    rows = table(columns) + [
        {"id": f"m{i}", "role": "seen", "label": 1, "d0": members[i], "d1": 0.0, "d2": 0.0}
        | {f"k{j}": copies[i, j] for j in range(5)}
        for i in range(30)
    ]
    known = {"members": members, "members_knockoffs": copies} if proportion.startswith("moment") else {}
    direct = tdd.ktd(
        columns["scores"][0],
        columns["knockoffs"],
        alpha=0.2,
        rule="conformal",
        proportion=proportion,
        calibration=columns["nonmembers"][0],
        calibration_knockoffs=columns["calibration knockoffs"],
        **known,
    )
    method = f"ktd:rule=conformal,proportion={proportion}"
    audit = tdd.select(rows, alpha=0.2, score="d0", knockoffs=KNOCKOFFS, method=method, member_role="seen")
    np.testing.assert_array_equal(chosen(audit), direct.selected)
    assert audit.run["decision"]["proportion"] == pytest.approx(float(direct.proportion), rel=1e-6)
    file = tmp_path / "w.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    names = ["--score", "d0", "--knockoffs", ",".join(KNOCKOFFS), "--member-role", "seen", "--alpha", "0.2"]
    assert main(["select", str(file), *names, "--method", method, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["decision"]["num_selected"] == int(direct.num_selected) >= 15


def test_a_rule_without_a_bound_promises_none(columns):
    audit = tdd.select(
        table(columns, "members"), alpha=0.2, score=DETECTORS, method="td4eval:combine=average", label_field="label"
    )
    assert "is at most" not in audit.run["outcome"]
    assert "What is known of its errors" in audit.run["outcome"]


@pytest.mark.slow("long")
def test_the_most_extreme_clean_items_have_the_largest_scores(capsys, tmp_path):
    rows = [{"id": f"c{i}", "role": "calibration", "d": i / 40} for i in range(40)]
    rows += [{"id": f"t{i}", "role": "candidate", "d": 5 + i} for i in range(30)]
    path = tmp_path / "table.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["select", str(path), "--method", "td4eval", "--score", "d", "--alpha", "0.1"]) == 0
    out = capsys.readouterr().out
    assert "t29" in out
    assert "t3 " not in out


def test_asymmetric_knockoffs_are_found(columns):
    shifted = dict(columns) | {"calibration knockoffs": columns["calibration knockoffs"] + 1}
    audit = tdd.select(table(shifted), alpha=0.3, score="d0", method="ktd", knockoffs=KNOCKOFFS)
    assert any("symmetry test" in warning for warning in audit.run["warnings"])


def test_groups_are_decided_by_cluster(columns):
    audit = tdd.select(table(columns, groups=4), alpha=0.3, score="d0", group_field="book", label_field="label")
    selected = chosen(audit).reshape(-1, 4)
    assert (selected.all(axis=1) | ~selected.any(axis=1)).all(), "a cluster is selected whole or not at all"
    assert selected.any()
    decision = audit.run["decision"]
    assert decision["num_units"] == 10
    assert f"{int(selected[:, 0].sum())} of 10 clusters are selected" in audit.run["outcome"]
    assert "clusters without any member among the selected clusters" in audit.run["outcome"]
    assert any("Clusters are decided on, not their items" in point for point in audit.run["open_points"])
    assert not audit.run["certificate"]["applies"]
    member = columns["member"].reshape(-1, 4).any(axis=1)
    false = int((selected[:, 0] & ~member).sum())
    assert decision["truth"]["num_false"] == false
    assert decision["truth"]["fdp"] == pytest.approx(false / selected[:, 0].sum())


@pytest.mark.slow("long")
def test_drawn_items_are_not_called_missing(columns):
    audit = tdd.select(table(columns, groups=4), alpha=0.3, score="d0", group_field="book", method="ptdi:unit=drawn")
    assert audit.run["decision"]["num_missing"] == 0
    assert audit.run["decision"]["num_tests"] == 10
    assert "of 10 drawn candidates" in audit.run["outcome"]


def test_groups_of_other_methods_are_only_reported(columns):
    ignored = tdd.select(
        table(columns, "members", groups=4), alpha=0.3, score=DETECTORS, method="jmcs", group_field="book"
    )
    assert any("groups" in warning for warning in ignored.run["warnings"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "ktd", "score": "d0"}, "knockoffs are missing"),
        (
            {"method": "ptdi", "score": "d0", "combine": "hommel"},
            r"method='td4eval:combine=hommel' or tdd.TD4Eval\(combine='hommel'\)",
        ),
        ({"method": "td4eval", "score": DETECTORS, "weights": (1, 2)}, r"'td4eval:weights=1:2' or .*weights=\(1, 2\)"),
        ({"method": "ptdi:combine=hommel", "score": "d0"}, r"no option 'combine'; .* \(combine belongs to td4eval\)"),
        ({"method": "ptdi", "score": DETECTORS}, "decides on one"),
        ({"method": "ktd", "score": "d0", "knockoffs": ("k0", "k9")}, "k9"),
        ({"method": "td4eval:combine=sum", "score": DETECTORS}, "combine"),
        ({"method": "ktd:rule=best", "score": "d0", "knockoffs": KNOCKOFFS}, "rule"),
        ({"method": "td4eval", "score": ("d0", "d0")}, "twice"),
        ({"method": "jmcs", "score": DETECTORS, "null": "nonmember"}, 'tests the null "member"'),
        ({"method": "jmcs", "score": DETECTORS, "label_field": "label"}, "labelled as non-member"),
        ({"method": "ptdi", "score": "d0", "delta": 1.5}, "delta"),
        ({"method": "guess", "score": "d0"}, "method 'guess' is not known"),
        ({"method": "jmcs", "score": DETECTORS, "proportion": "none"}, "method='ptdi:proportion=none'"),
        ({"method": "jecs:eta=0.1", "score": DETECTORS}, "eta belongs to ptdi and jmcs"),
        ({"method": "ptdi:unit=item", "score": "d0"}, "needs clusters"),
        ({"method": "ktd", "score": "d0", "knockoffs": ("d0", "k0")}, "the score itself"),
        ({"method": "ktd:proportion=none", "score": "d0", "knockoffs": KNOCKOFFS}, "rule 'conformal'"),
        ({"method": "ptdi", "score": "d0", "delta": 1e-6}, "too small for 9999 draws"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["method"],
)
def test_bad_options(columns, options, message):
    with pytest.raises(tdd.InputError, match=message):
        tdd.select(table(columns), alpha=0.2, **options)


@pytest.mark.slow("long")
def test_reports_on_the_command_line(columns, tmp_path, capsys):
    path = tmp_path / "table.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in table(columns, "members")))
    arguments = ["select", str(path), "--method", "td4eval", "--score", "d0,d1", "--score", "d2", "--alpha", "0.2"]
    assert main([*arguments, "--label-field", "label"]) == 0
    out = capsys.readouterr().out
    for words in ("selected as presumed clean", "td4eval/pooled_rank", "3 columns d0,", "known truth"):
        assert words in out
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decision"]["columns"] == list(DETECTORS)


def test_guarantees_are_printed_from_the_records(capsys):
    assert main(["guarantees", "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["call"].startswith("tdd.")]
    calls = {row["call"] for row in rows}
    assert {"tdd.ptdi", "tdd.td4eval", "tdd.ktd", "tdd.jmcs", "tdd.jecs", "tdd.exchangeability"} <= calls
    for row in rows:
        assert operator.attrgetter(row["call"].removeprefix("tdd."))(tdd), row["call"]
        assert row["guarantee"]["kind"] in ("finite-sample", "asymptotic", "none")
        assert row["guarantee"]["source"]
    assert main(["guarantees"]) == 0
    assert "finite-sample" in capsys.readouterr().out


@pytest.mark.parametrize(("method", "least_extreme"), [("ptdi", max), ("td4eval", min)])
def test_the_cut_is_the_least_extreme_score_selected(columns, method, least_extreme):
    audit = tdd.select(
        table(columns, "nonmembers" if method == "ptdi" else "members"), method=method, score="d0", alpha=0.3
    )
    selected = chosen(audit)
    assert 1 < selected.sum() < M
    assert audit.run["decision"]["score_cut"] == least_extreme(columns["scores"][0][selected])


def test_a_column_that_splits_holds_nothing_but_one_zero_and_blank():
    columns = {
        "id": [f"i{i}" for i in range(50)],
        "role": ["calibration"] * 40 + ["candidate"] * 10,
        "a": [(7 * i) % 50 for i in range(50)],
        "b": [(11 * i) % 50 for i in range(50)],
        "half": [1, 0, float("nan"), 1] * 10 + [float("nan")] * 10,
    }
    options = {"alpha": 0.2, "score": ("a", "b"), "method": "td4eval:combine=split_weights", "split_column": "half"}
    assert tdd.select(columns, **options).run["options"]["split_column"] == "half"
    columns["half"][2] = 0.5
    with pytest.raises(tdd.InputError, match=r"split_column 'half' holds 0\.5; it must hold 1, 0 or blanks"):
        tdd.select(columns, **options)
