"""The report of an audit: how to read it, excerpts and examples, terms, the command that repeats it."""

import html
import re
import typing
import unicodedata

import numpy as np
import pytest
from pages import HOSTILE, Reader
from rich.console import Console

from tdd.audit.select import select
from tdd.procedures.procedure import known_procedures
from tdd.report import audit as audit_module
from tdd.report import folder_report
from tdd.report.audit import audit_report
from tdd.report.page import to_html, to_markdown
from tdd.report.sections import Figure, Help, Table, to_terminal
from tdd.runs.folder import read_run, write_sealed
from tdd.runs.portable import typed_command


def run_of(num_selected=30, alpha=0.2, **options):
    roles = ["calibration"] * 60 + ["candidate"] * (num_selected + 10)
    loss = [float(i) for i in range(60)] + [-1.0 - i for i in range(num_selected)] + [50.5 + i for i in range(10)]
    ids = [f"item {i}" for i in range(len(roles))]
    return select({"id": ids, "role": roles, "loss": loss}, alpha=alpha, **options)


@pytest.fixture(scope="module")
def audit():
    with typed_command(["tdd", "select", "/secret/folder/scores.csv", "--alpha", "0.2"]):
        return run_of()


def page_of(audit, **more):
    return to_html(audit_report({**audit.run, **more}, audit.items))


def texts_of(audit, text):
    return [[name, text] for name in audit.selected_ids]


def test_lines_on_how_to_read_and_terms(audit):
    sections = audit_report(audit.run, audit.items).sections
    guide, terms = (one for one in sections if isinstance(one, Help))
    assert [one.title for one in sections[:5]] == [
        "Warnings", "How to read this", "Assumptions of the guarantee", "What this run does not establish",
        "Method and counts",
    ]  # fmt: skip
    assert sections[-1] == terms
    assert (len(guide.rows), guide.folded) == (5, False)
    assert (len(terms.rows), terms.folded) == (6, True)
    reader = Reader(page_of(audit))
    assert len(reader.named("details")) == len(reader.named("summary")) == 1
    assert len(reader.named("dt")) == len(reader.named("dd")) == 6
    assert "open" not in reader.named("details")[0]
    assert "How to read this" in to_markdown(audit_report(audit.run, audit.items))


def test_a_withheld_verdict_is_read_otherwise(audit):
    verdict = {**audit.run["verdict"], "stands": False, "failed": ["a reason"]}
    examples = {
        "overlap": [
            {"role": "calibration", "id": "k1", "text": "one"},
            {"role": "candidate", "id": "c1", "text": "two"},
        ]
    }
    page = page_of(audit, verdict=verdict, examples=examples, excerpts=texts_of(audit, "a secret"))
    assert "No verdict is given" in page
    assert "The error rate is that of" not in page
    assert "passages across the two sets" in page
    assert re.search(r">k1<.*>one<", page)
    assert re.search(r">c1<.*>two<", page)
    assert "Selected items" not in page
    assert "a secret" not in page


def test_the_command_repeats_the_run_and_tells_no_folder(audit):
    page = html.unescape(page_of(audit))
    assert "tdd select scores.csv --alpha 0.2 --seed 0, in the folder" in page
    assert "/secret" not in page
    seeded = {"command": "tdd select scores.csv --seed 7"}
    assert "tdd select scores.csv --seed 7, in the folder" in html.unescape(page_of(audit, **seeded))
    assert "tdd.select(...)" in html.unescape(to_html(run_of().report()))


@pytest.fixture(scope="module")
def plain_elements(audit):
    return [name for name, _ in Reader(page_of(audit, excerpts=texts_of(audit, "plain"))).elements]


@pytest.mark.parametrize("text", [one for one in HOSTILE if "\n" not in one])
def test_excerpts_stay_inert(audit, plain_elements, text):
    reader = Reader(page_of(audit, excerpts=texts_of(audit, text)))
    assert [name for name, _ in reader.elements] == plain_elements
    cells = [one for one in reader.named("td") if one.get("class") == "excerpt"]
    assert len(cells) == 30
    assert {one["dir"] for one in cells} == {"auto"}
    assert all(c.isprintable() or c == "\n" for c in "".join(reader.text))


def test_two_hundred_rows_on_the_page_and_ten_on_the_terminal(capsys):
    audit = run_of(num_selected=230)
    report = audit_report({**audit.run, "excerpts": texts_of(audit, "word " * 32)[:200]}, audit.items)
    (table,) = (one for one in report.sections if isinstance(one, Table) and one.title == "Selected items")
    assert len(table.rows) == 200
    page = to_html(report)
    assert len(page) < 300_000
    assert "Selected items, the 200 most extreme of 230" in page
    assert "Selected items, the 10 most extreme of 230" in to_markdown(report)
    Console(width=100, highlight=False).print(to_terminal(report))
    shown = capsys.readouterr().out
    assert "Selected items, the 10 most extreme of 230" in shown
    assert shown.count("│ item ") == 10
    assert "Terms" not in shown
    assert "How to read this" not in shown
    assert max(map(len, shown.splitlines())) <= 100


def guide_of(run):
    return next([line for _, line in one.rows] for one in audit_report(run).sections if isinstance(one, Help))


def test_the_lines_on_how_to_read_say_only_what_the_run_says(audit):
    """An empty list, a procedure without a guarantee and a run without checks have lines of their own."""
    decision = audit.run["decision"]
    unproven = {**decision, "guarantee": {**decision["guarantee"], "kind": "none"}}
    of_list, unknown = "The error rate is that of the list", "The error rate is unknown"
    empty, checks = "That nothing is selected rules nothing out", "The checks are listed"
    for changed, said, unsaid in (
        ({}, (of_list, checks), (unknown, empty)),
        ({"decision": {**decision, "num_selected": 0}}, (empty, checks), (of_list, unknown)),
        ({"decision": unproven}, (unknown, checks), (of_list, empty)),
        ({"checks": {}}, (of_list,), (checks,)),
    ):
        lines = guide_of({**audit.run, **changed})
        assert all(any(line.startswith(one) for line in lines) for one in said)
        assert not any(line.startswith(unsaid) for line in lines)


def test_terms_are_those_of_the_run(audit):
    """Six, the last thing on the page; a line that uses any other term explains it."""
    decision = audit.run["decision"]
    joint = {**decision, "guarantee": {**decision["guarantee"], "controls": "GCR <= alpha"}}
    knockoffs = {**decision, "method": "ktd/multi", "num_calibration": 0}
    calibrated = {**decision, "method": "ktd/conformal"}
    known = {**decision, "truth": {"num_false": 1, "fdp": 0.1, "power": 0.5}}
    blind = {"blind_baseline": {"auc": 0.5, "p_value": 0.5, "warning": ""}}
    for changed, rate, said in (
        ({}, "FDR", "Candidates are the items in question. Calibration items were given as"),
        ({"decision": joint}, "GCR", "lower = more like an item that was trained on"),
        ({"decision": knockoffs}, "FDR", "Candidates are the items in question. The score of each is compared with"),
        (
            {"decision": calibrated},
            "FDR",
            "theirs. The score of each is compared with those of its knockoffs, stand-ins",
        ),
        (
            {"decision": known},
            "FDR",
            "(FDP, their fraction of the list: 0.100); power, the fraction of the items to be",
        ),
        ({"checks": blind}, "FDR", "AUC 0.500 without the model (0.5 is chance)"),
    ):
        report = audit_report({**audit.run, **changed})
        terms = [term for term, _ in report.sections[-1].rows]
        assert terms == ["member", rate, "level, alpha", "exchangeable", "p-value", "adjusted p-value"]
        assert said in to_html(report)


def test_too_few_items_for_any_selection_are_said_first():
    """Twelve calibration items among fifteen candidates without members allow nothing; three hundred would."""
    roles = ["candidate"] * 15 + ["calibration"] * 12
    few = select({"role": roles, "loss": [*range(15), *range(12)]}, alpha=0.1)
    assert few.run["checks"]["resolution"]["warning"].startswith("nothing can be selected")
    assert "no selection was possible" in few.run["outcome"]
    assert "no selection was possible" not in run_of().run["outcome"]
    roles += ["calibration"] * 288
    enough = select({"role": roles, "loss": [*range(20, 320, 20), *range(300)]}, alpha=0.1)
    assert enough.run["outcome"].startswith("None of 15 candidates is selected")
    assert "no selection was possible" not in enough.run["outcome"]


def test_the_error_rate_of_a_list_is_not_that_of_its_items(audit):
    shown = to_markdown(audit_report(audit.run, audit.items))
    count = len(audit.selected_ids)
    assert f"at most 20% on average over repetitions of the audit; 20% of {count} items is {0.2 * count:.3g}" in shown
    fewer = run_of(method="ptdi:proportion=none")
    adjusted = float(fewer.items["adjusted"][fewer.items["selected"]].min())
    assert f"| {adjusted:.4g} |" in to_markdown(fewer.report())


@pytest.fixture(scope="module")
def books():
    """Twenty of forty books have one member among their ten passages."""
    rng = np.random.default_rng(0)
    member = (np.arange(400) % 10 == 0) & (np.arange(400) < 200)
    return {
        "id": [*range(1000)],
        "role": ["calibration"] * 600 + ["candidate"] * 400,
        "book": [f"{i // 10}" for i in range(1000)],
        "loss": [*rng.normal(3, 0.5, 600), *(rng.normal(3, 0.5, 400) - 3.5 * member)],
        "label": [0] * 600 + member.astype(int).tolist(),
    }


def of_books(books, unit, **options):
    method = f"ptdi:unit={unit}"
    fields = {"score": "loss", "group_field": "book", "label_field": "label"}
    return select(books, method=method, **{"alpha": 0.1, **fields, **options})


def test_a_list_of_clusters_has_the_error_rate_of_clusters(books):
    """Nine of ten selected items are false, and at most a tenth of the clusters."""
    audit = of_books(books, "cluster")
    false = (np.asarray(audit.items["label"])[np.asarray(audit.items["selected"])] == 0).sum()
    assert false > 0.8 * len(audit.selected_ids)
    shown = to_markdown(audit.report())
    count = audit.run["decision"]["num_units_selected"]
    for said in (
        f"over repetitions of the audit; 10% of {count} clusters is {0.1 * count:.3g}, and this list may hold more",
        "any other may contain non-members too",
        "The error rate is that of the list of selected clusters. No single cluster on it is proven",
        "FDR: false discovery rate: the fraction of the selected clusters that have no member",
        "| null hypothesis of a cluster | none of its items was in the training data |",
        f"| selected | {count} clusters, {len(audit.selected_ids)} candidates |",
        "| fraction of clusters with a member |",
        "the fraction of the clusters to be found",
    ):
        assert said in shown, said


def test_of_drawn_items_the_others_are_counted(books):
    drawn = of_books(books, "drawn")
    assert fact(drawn.run, "candidates that were not drawn, and not decided on") == "360"
    shown = to_markdown(drawn.report())
    assert "| candidates | 40 |" in shown
    assert "calibration items in use" not in shown


def test_the_result_of_a_withdrawn_procedure_is_no_result(audit, tmp_path):
    """Folders of versions that offered it may hold one."""
    folder = tmp_path / "old"
    folder.mkdir()
    audit.save(folder)
    write_sealed(folder / "run.json", {**audit.run, 
        "files": read_run(folder)["files"], "decision": {**audit.run["decision"], "method": "ktd/closed"}
    })  # fmt: skip
    record, report = folder_report(folder)
    why = "No verdict: the procedure ktd/closed was withdrawn, because its false discovery rate can exceed"
    assert record["outcome"].startswith(why)
    assert not record["verdict"]["stands"]
    assert record["decision"]["guarantee"]["kind"] == "none"
    shown = to_markdown(report)
    assert why in shown
    assert "run the audit with another procedure" in shown
    for unsaid in ("is at most 20%", "The level bounds", "Selected items", "tdd select", "prepare calibration items"):
        assert unsaid not in shown


def test_clusters_that_are_too_few_are_told_as_clusters(books):
    few = of_books(books, "cluster", alpha=0.001)
    (said,) = (warning for warning in few.run["warnings"] if "selected:" in warning)
    assert said == (
        "nothing can be selected: with as few as 60 calibration clusters, cluster_ptdi/cluster/storey selects nothing "
        "at level 0.001, whatever the scores"
    )


def test_items_of_clusters_are_calibrated_by_clusters(books):
    shown = to_markdown(of_books(books, "item").report())
    assert "| calibration clusters | 60," in shown
    assert "further calibration items" not in shown


def test_what_the_list_may_hold_has_the_condition_of_the_verdict(audit):
    """Over calibration samples the rate is alpha + delta; in the limit of many items nothing is known of a list."""
    given = run_of(method="conditional")
    said = given.report().sections
    (note,) = (one.note for one in said if isinstance(one, Table) and one.title == "Selected items")
    assert "at most 20% on average for a given calibration sample, with probability 1 - delta over such" in note
    assert "repetitions of the audit" not in note
    assert said[-1].rows[1][1].endswith("averaged over repetitions with one calibration sample")
    decision = audit.run["decision"]
    asymptotic = {**decision, "guarantee": {**decision["guarantee"], "kind": "asymptotic"}}
    shown = to_markdown(audit_report({**audit.run, "decision": asymptotic}, audit.items))
    assert "the false fraction of such lists" not in shown
    assert "The last column is the smallest level" in shown


def test_one_is_told_as_one():
    """Of one candidate, one cluster, one false item."""
    rows = {"role": ["calibration"] * 60 + ["candidate"] * 2, "loss": [*range(60), -1.0, -1.0], "label": [0] * 62}
    grouped = {**rows, "book": [*range(60), 60, 60]}
    options = {"alpha": 0.2, "score": "loss", "label_field": "label", "method": "ptdi:proportion=none"}
    one = select(grouped, group_field="book", **options)
    assert one.run["outcome"].startswith("1 of 1 cluster is selected as suspected training data (2 candidates)")
    assert fact(one.run, "against the known truth").startswith("1 cluster without any member selected")
    alone = select({**rows, "role": ["calibration"] * 61 + ["candidate"], "loss": [*range(61), -1.0]}, **options)
    assert fact(alone.run, "against the known truth").startswith("1 non-member selected")
    assert any(
        getattr(one, "alternative", "").endswith("; 1 candidate is selected.") for one in alone.report().sections
    )
    none = select({**rows, "role": ["calibration"] * 61 + ["candidate"], "loss": [*range(61), 80.0]}, **options)
    assert none.run["outcome"].startswith("The only candidate is not selected as suspected training data")


def test_a_page_for_the_printer(audit):
    css = page_of(audit).partition("<style>")[2].partition("</style>")[0]
    assert "@page { size: A4;" in css
    printed = css.partition("@media print {")[2]
    for rule in (
        "thead { display: table-header-group; }",
        "tr, li { break-inside: avoid; }",
        ".scroll { overflow: visible; }",
    ):
        assert rule in printed.replace("h2, figure, ", "")
    assert "details-content { content-visibility: visible" in printed


def test_the_picture_of_knockoff_statistics():
    """Both counts at every t, against plain counting, and the smallest selected statistic."""
    w = np.concatenate([np.arange(1, 41) / 10, -np.array([0.05, 0.15, 0.3]), [0.0]])
    own = np.arange(w.size) / 8  # a tie of all of them would be no score
    columns = {"id": [f"i{i}" for i in range(w.size)], "original": own.tolist(), "b": (own + w).tolist()}
    audit = select(columns, alpha=0.2, method="ktd:rule=ktd", score="original", knockoffs=("b",))
    pictures = {one.title: one for one in audit_report(audit.run, audit.items).sections if isinstance(one, Figure)}
    axes = pictures["Knockoff statistics"].draw().axes[0]
    above, below, cut = axes.get_lines()
    for line, side in ((above, w), (below, -w)):
        t, count = line.get_data()
        np.testing.assert_array_equal(count, [(side >= np.float64(one) - 1e-6).sum() for one in t])
    assert len(t) == len(np.unique(np.abs(w[w != 0]).astype(np.float32)))
    assert cut.get_xdata()[0] == pytest.approx(w[np.asarray(audit.items["selected"])].min(), abs=1e-6)
    assert [line.get_label() for line in axes.get_lines()] == ["W ≥ t", "W ≤ -t", "smallest selected W"]
    assert "Knockoff statistics" not in [one.title for one in run_of().report().sections if isinstance(one, Figure)]


@pytest.mark.parametrize("offset", [1, 0])
@pytest.mark.parametrize("rule", ["ktd", "multi"])
def test_the_words_below_it_are_those_of_the_rule(rule, offset):
    """The estimate that they describe gives the selection; the one of the other rule does not."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=(80, 4)) - 2.0 * (np.arange(80)[:, None] < 30) * np.array([1, 0, 0, 0])
    columns = {"id": [*range(80)], **{name: z[:, j].tolist() for j, name in enumerate(["original", "b", "c", "d"])}}
    method = f"ktd:rule={rule},offset={offset}"
    audit = select(columns, alpha=0.3, method=method, score="original", knockoffs=("b", "c", "d"))
    (figure,) = [
        one for one in audit_report(audit.run, audit.items).sections if getattr(one, "title", "")[:8] == "Knockoff"
    ]
    w = np.asarray(audit.items["statistic"])

    def smallest(plus, divided):
        """The smallest t at which the estimate is at most alpha times the first number."""
        ratio = {t: (plus + (w <= -t).sum()) / divided / max(1, (w >= t).sum()) for t in np.unique(np.abs(w[w != 0]))}
        return min(t for t, value in ratio.items() if value <= 0.3)

    assert ("plus one" in figure.alternative) == (offset == 1)
    assert ("divided by the number of knockoffs" in figure.alternative) == (rule == "multi")
    divided, other = (3, 1) if rule == "multi" else (1, 3)
    np.testing.assert_array_equal(np.asarray(audit.items["selected"]), w >= smallest(offset, divided))
    assert (w >= smallest(offset, divided)).sum() != (w >= smallest(offset, other)).sum()
    what = "gap" if rule == "multi" else "W"
    assert figure.draw().axes[0].get_lines()[0].get_label() == f"{what} ≥ t"


def fact(run, name):
    (section,) = (one for one in audit_report(run).sections if one.title == "Method and counts")
    return dict(section.rows)[name]


def test_the_row_of_the_procedure_names_rule_and_estimate(audit):
    decision = audit.run["decision"]
    for changed, options, words in (
        ({}, {}, ": Benjamini and Hochberg's procedure on conformal p-values, with Storey's estimate of the"),
        (
            {"method": "cluster_ptdi/cluster/none", "unit": "cluster"},
            {},
            " p-values of clusters, without an estimate of the fraction of clusters with a member",
        ),
        ({"method": "cluster_ptdi/drawn/storey", "unit": "drawn"}, {}, "one item drawn from each cluster, with"),
        ({"method": "ktd/conformal"}, {"proportion": "moment"}, " statistics, with the moment estimate of the"),
        ({"method": "ktd/conformal"}, {"proportion": "storey"}, " statistics, with Storey's estimate of the fraction"),
        ({"method": "ktd/multi"}, {"proportion": None}, ": knockoff filter for several knockoffs an item"),
        ({"method": "jmcs/storey", "null": "member"}, {}, "models, with Storey's estimate of the fraction of clean"),
    ):  # fmt: skip
        shown = fact({**audit.run, "options": options, "decision": {**decision, **changed}}, "procedure")
        assert shown.startswith(changed.get("method", "ptdi/storey"))
        assert words in shown
    assert fact({**audit.run, "decision": {**decision, "method": "ours/storey"}}, "procedure") == "ours/storey"


def test_every_procedure_of_the_package_is_told_in_words():
    """By each of its options that name it; of a cluster procedure the label is that of its result."""
    for name, cls in known_procedures().items():
        if not cls.__module__.startswith("tdd."):
            continue
        for value in typing.get_args(typing.get_type_hints(cls).get(getattr(cls, "_option", ""), None)) or ("",):
            method = (f"{name}/{value}" if value else name).replace(
                "weighted", "weighted_conformal_selection/homogeneous"
            )
            record = {"decision": {"method": method, "unit": "item", "null": "nonmember"}, "options": {}}
            assert audit_module._procedure(record) != method, method


def test_what_a_guarantee_names_is_explained(audit):
    decision = audit.run["decision"]
    for controls, said, unsaid in (
        ("FDR <= alpha", ("FDR: false discovery rate; alpha: the level; finite-sample:",), ("m0:", "n:", "V:")),
        ("FDR <= alpha * (1 + 1/m) * (1 + 1/n)", ("m: number", "n: size"), ("m0:", "GCR")),
        ("E[V/(R + 1/(alpha k))] <= alpha", ("V: number of false items among the R", "k: number"), ("FDR:",)),
    ):
        guarantee = {**decision["guarantee"], "controls": controls}
        shown = fact({**audit.run, "decision": {**decision, "guarantee": guarantee}}, "guarantee")
        assert shown.startswith(f"{controls}, finite-sample (")
        assert all(one in shown for one in said)
        assert not any(one in shown for one in unsaid)


def test_items_of_several_models_are_told_as_such(audit):
    decision = audit.run["decision"]
    several = {**audit.run, "decision": {**decision, "method": "jmcs/bh", "null": "member"}}
    assert fact(several, "null hypothesis of an item") == "the candidate was in the training data of at least one model"
    assert fact(several, "calibration items") == "60, given as known members of every model"
    assert fact(audit.run, "calibration items") == "60, given as known non-members"


@pytest.mark.parametrize("form", [to_markdown, to_html])
@pytest.mark.parametrize(
    "names",
    [
        ["caf\u00e9", "cafe\u0301", "x", "x ", " x", "a b", "a  b", "a\nb", r"a\nb", "'x '", r"'a\nb'"],
        ["x", *(f"x{unseen}" for unseen in "\ufe0f\u034f\u3164\u115f\u200b\U000e0101\U0001d159\U00016fe4")],
    ],
    ids=["spaces", "unseen"],
)
def test_ids_that_differ_do_not_look_alike(names, form):
    """Composed and not, with and without spaces, a line break and its name, and with what leaves no mark."""
    roles = ["calibration"] * 60 + ["candidate"] * len(names)
    rows = {"id": [*(f"k{i}" for i in range(60)), *names], "role": roles, "loss": [*range(60), *range(-len(names), 0)]}
    shown = form(select(rows, alpha=0.2).report()).rpartition("Selected items")[2].partition("Where it comes from")[0]
    cells = re.findall(r"<td>(.*?)</td>" if form is to_html else r"\| (.+?) \|", shown)
    cells = [re.sub("[\ufe0f\u034f\u3164\u115f\u200b\U000e0101\U0001d159\U00016fe4]", "", one) for one in cells]
    looks = [" ".join(unicodedata.normalize("NFC", html.unescape(one)).split()) for one in cells]
    alone = [one for one in looks if re.search(r"caf|x|a.*b", one) and looks.count(one) == 1]
    assert len(alone) == (len(names) if form is to_html else min(len(names), 10))  # as many as Markdown shows
