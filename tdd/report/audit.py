"""The report of an audit: what was selected, at which level, under which assumptions, and what is missing."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.report.sections import (
    Column,
    Facts,
    Figure,
    Help,
    Points,
    Report,
    Row,
    Section,
    Table,
    Thumbnails,
    capital,
    caveats,
    in_words,
    to_repeat,
)
from tdd.runs.extremes import most_extreme, numbers
from tdd.runs.folder import WITHDRAWN
from tdd.runs.units import Unit, counted, unit_of
from tdd.validate import spelled

_SHOWN, _LISTED = 10, 200
_SUBJECTS = {"nonmember": "were in the training data", "member": "are clean"}
_LEVELS = {
    "any": "may be compared with any level that was fixed beforehand, not with one chosen after looking",
    "one": "may be compared with this level alone; at another level they are others",
}
_STEP_UPS = {
    *(f"ptdi/{proportion}" for proportion in ("none", "storey", "subtraction", "moment", "moment_paper")),
    *("jmcs/bh", "jmcs/storey", "td4eval/pooled_rank", "td4eval/split_weights"),
}
"""Procedures that compare the p-values of single items with the line t·pi0/alpha."""
_OF_W = {"ktd/ktd": "W", "ktd/multi": "gap"}
"""Procedures that compare the numbers of statistics beyond t and -t -> the statistic."""
_BH = "Benjamini and Hochberg's procedure"
_OF_MODELS = "the largest p-value of an item under the models"
_RULES = {
    "ptdi": f"{_BH} on conformal p-values{{}}",
    "cluster_ptdi/item": "e-BH on e-values of the items",
    "cluster_ptdi/item/uninformative": "Benjamini and Yekutieli's procedure on p-values of the items",
    "conditional": f"{_BH} on p-values that hold given the calibration sample",
    "ktd/ktd": "knockoff filter",
    "ktd/multi": "knockoff filter for several knockoffs an item",
    "ktd/derandomized": "e-BH on e-values averaged over the knockoffs",
    "ktd/closed": "closed e-BH on e-values averaged over the knockoffs (withdrawn: it can exceed its level)",
    "ktd/conformal": f"{_BH} on conformal p-values of the knockoff statistics",
    "td4eval": "one decision from several detectors",
    "td4eval/pooled_rank": f"{_BH} on conformal p-values of the pooled ranks of the detectors",
    "td4eval/split_weights": f"{_BH} on conformal p-values of the pooled ranks, with learned weights of the detectors",
    "td4eval/e_values": "e-BH on e-values averaged over the detectors",
    "td4eval/closed_e_values": "closed e-BH on e-values averaged over the detectors",
    "jmcs": f"{_BH} on {_OF_MODELS}",
    "jmcs/by": f"Benjamini and Yekutieli's procedure on {_OF_MODELS}",
    "jecs": f"{_BH} on {_OF_MODELS}, with an estimate of the distribution of these p-values",
    "best_score": "e-BH on e-values of the score that selects most, chosen for each item without it",
    "combined_score/split": f"{_BH} on conformal p-values of a score that is learned from all columns",
    "combined_score/cross_fit": "e-BH on e-values of a score that is learned from all columns",
    "weighted_conformal_selection": "selection by conformal p-values with the given weights",
}
"""Procedure, with the option that decides most where it needs words of its own -> its rule."""
_OF_UNITS = {"item": "", "cluster": " of clusters", "drawn": " of one item drawn from each cluster"}
_ESTIMATES = {
    "none": "without an estimate of the fraction of {}",
    "storey": "with Storey's estimate of the fraction of {}",
    "subtraction": "with the subtraction estimate of the fraction of {}",
    "moment": "with the moment estimate of the fraction of {}, in the variant of this package",
    "moment_paper": "with the moment estimate of the fraction of {}, as in the paper",
}
_KNOWN = {"nonmember": "non-members", "member": "members"}
_NULLS = {"nonmember": "the candidate was not in the training data", "member": "the candidate was in the training data"}


def audit_report(
    run: Mapping[str, Any], items: Mapping[str, Any] | None = None, calibration: Mapping[str, Any] | None = None
) -> Report:
    """The report of a run from run.json, items.csv and calibration.csv; without items no list and no pictures."""
    decision, stands = run["decision"], run["verdict"]["stands"]
    assumes, warnings = decision["guarantee"]["assumes"], capital(run["warnings"])
    sections = caveats(assumes, run["open_points"], warnings, _how_to_read(run))
    sections.append(_decided(run))
    if stands and items is not None:
        sections += _pictures(run, items, calibration)
    if stands and run["certificate"]:
        sections.append(_bounds(run["certificate"], decision))
    if stands and run.get("rankings"):
        sections.append(_rankings(run["rankings"]))
    if run["checks"]:
        sections.append(_checks(run))
    if run.get("examples"):
        sections.append(_examples(run["examples"]))
    if stands and items is not None and decision["num_selected"]:
        sections.append(_selected(run, items))
    if stands and (images := run.get("thumbnails")):
        shown = f"{len(images)} of {decision['num_selected']} selected images, those with the smallest p-values first."
        sections.append(Thumbnails("Selected images", tuple((spelled(name), image) for name, image in images), shown))
    sections.append(_origin(run))
    if run.get("demonstration"):
        sections.append(_demonstration(run["demonstration"]))
    sections.append(_terms(run))
    return Report(_title(run), run["outcome"], tuple(sections), stands)


def _title(run: Mapping[str, Any]) -> str:
    if not run["model"]:
        return "Selection from a table of scores"
    name = run["model"]["name"]
    return f"Audit of {name}" if name.startswith("samples of ") else f"Audit of the model {name}"


def _demonstration(rows: Sequence[Mapping[str, Any]]) -> Table:
    """FDP and power of this run, and their means over repeated divisions, for every score and level."""
    names = ("level", "selected", "false", "FDP", "power", "mean FDP ± s.e.", "mean power")
    cells = (
        "{score}", "{alpha:g}", "{num_selected}", "{num_false}", "{fdp:.3f}", "{power:.3f}",
        "{mean_fdp:.3f} ± {se_fdp:.3f}", "{mean_power:.3f}",
    )  # fmt: skip
    shown = [
        Row(tuple(cell.format(**row) for cell in cells), ruled=place > 0 and row["score"] != rows[place - 1]["score"])
        for place, row in enumerate(rows)
    ]
    return Table(
        "Decisions against the known truth",
        (Column("score"), *(Column(name, number=True) for name in names)),
        tuple(shown),
        "Each row is one score chosen beforehand. FDP is the false fraction of a list, power the fraction of the "
        "members that is selected. The FDP of one run may exceed its level; its mean is controlled. The last two "
        "columns average 1,000 random divisions of the non-members into calibration and candidates.",
    )


def _decided(run: Mapping[str, Any]) -> Facts:
    decision, guarantee, stands = run["decision"], run["decision"]["guarantee"], run["verdict"]["stands"]
    models = decision["method"].startswith(("jmcs/", "jecs"))
    unit = _unit(decision)
    null = (
        ("null hypothesis of a cluster", "none of its items was in the training data")
        if decision["unit"] == "cluster"
        else ("null hypothesis of an item", _NULLS[decision["null"]] + (" of at least one model" if models else ""))
    )
    rows = [
        null,
        ("procedure", _procedure(run)),
        _scores(decision["columns"]),
        ("level, alpha", f"{decision['alpha']:g}"),
        ("guarantee", in_words(decision["guarantee"]) if stands else "none: no verdict is given"),
        ("candidates", _count(decision["num_tests"], decision["num_missing"])),
    ]
    if decision["num_calibration"] or decision["num_missing_calibration"] or not decision["method"].startswith("ktd/"):
        what = "calibration clusters" if _clustered(decision) else "calibration items"
        count = _count(decision["num_calibration"], decision["num_missing_calibration"])
        rows.append((what, f"{count}, given as known {_KNOWN[decision['null']]}{' of every model' if models else ''}"))
        given = run["checks"].get("effective_calibration", {}).get("num_given", 0)
        others = given - decision["num_calibration"] - decision["num_missing_calibration"]
        if not _clustered(decision) and others > 0:
            further = ("further calibration item", "further calibration items")
            rows.append(("learned from", counted(others, further)))
    if not stands:
        return Facts("Method and counts", (*rows, ("selected", "no verdict: see above")))
    of_clusters = f"{counted(decision['num_units_selected'], unit.listed)}, " if decision["unit"] == "cluster" else ""
    rows.append(("selected", f"{of_clusters}{decision['num_selected']}" + (" candidates" if of_clusters else "")))
    rows.append(("adjusted p-values", _LEVELS[guarantee["levels"]]))
    if decision["num_selected"] and decision["threshold"]:
        rows.append(("largest selected p-value", f"{decision['threshold']:.4g}"))
    rows += [*_proportion(decision), *((name, value) for name, value in decision["facts"])]
    if decision["truth"]:
        truth = decision["truth"]
        power = "undefined: nothing to find" if truth["power"] is None else f"{truth['power']:.3f}"
        false = counted(truth["num_false"], unit.false)
        errors = (
            f"{false} selected (FDP, their fraction of the list: {truth['fdp']:.3f}); "
            f"power, the fraction of the {unit.listed[1]} to be found that is selected: {power}"
        )
        rows.append(("against the known truth", errors))
    return Facts("Method and counts", tuple(rows))


def _procedure(run: Mapping[str, Any]) -> str:
    """The name of the procedure, its rule, and its estimate where it has one."""
    decision = run["decision"]
    method = decision["method"]
    name, option = method.partition("/")[0], method.rpartition("/")[2]
    if _clustered(decision) and option in _ESTIMATES:
        name = "ptdi"
    rule = _RULES.get(method, _RULES.get(name, "")).format(_OF_UNITS[decision["unit"]])
    estimate = run["options"].get("proportion") if method == "ktd/conformal" else option
    words = _ESTIMATES.get(estimate, "").format(_unit(decision).found) if rule else ""
    return ": ".join(filter(None, (method, ", ".join(filter(None, (rule, words))))))


def _scores(columns: Sequence[str]) -> tuple[str, str]:
    lower = "(lower = more like an item that was trained on)"
    return (
        ("score", f"{columns[0]} {lower}")
        if len(columns) == 1
        else ("scores", f"{len(columns)} columns {', '.join(columns)} {lower}")
    )


def _origin(run: Mapping[str, Any]) -> Facts:
    """Model and inputs; knockoffs that are columns of their texts' table share a line."""
    rows: list[tuple[str, str]] = []
    if run["model"]:
        model = run["model"]
        revision = f", revision {model['revision']}" if model["revision"] else ""
        rows.append(("model", f"{model['name']}{revision} (contents {model['sha256'][:12]})"))
    columns: dict[str, list[str]] = {}
    inputs = run["inputs"]
    for role, source in inputs.items():
        hashed, (kind, _, number) = source["sha256"][:12], role.rpartition(" ")
        owner = "calibration" if kind.startswith("calibration") else "candidate"
        table = inputs.get(owner, {}).get("source", "")
        if number.isdigit() and source["source"].startswith(f"{table}, field "):
            columns.setdefault(kind, []).append(f"{source['source'][len(table) + 2 :]} (contents {hashed})")
        else:
            rows.append((f"input: {role}", f"{source['source']} (contents {hashed})"))
    rows += [(f"input: {kind}s", f"of the same table, {', '.join(fields)}") for kind, fields in columns.items()]
    again = to_repeat(run, "tdd.run_audit" if run["model"] else "tdd.select")
    if run["decision"]["method"] in WITHDRAWN:
        again = "not possible: the procedure was withdrawn"
    rows += [("contents", "SHA-256 of what was read, not of a file's bytes (run.json has all digits)")]
    rows += [("versions", ", ".join(f"{name} {version}" for name, version in run["versions"].items()))]
    rows += [("seed", str(run["seed"])), ("finished", run["created"]), ("to repeat it", again)]
    return Facts("Where it comes from", tuple(rows))


def _how_to_read(run: Mapping[str, Any]) -> list[str]:
    """At most five lines, by what the run says."""
    decision = run["decision"]
    of_knockoffs = decision["method"].startswith("ktd/")
    one, several = _unit(decision).listed
    compared = [_CANDIDATES] if decision["num_calibration"] or of_knockoffs else []
    compared += [_COMPARED[decision["null"]]] if decision["num_calibration"] else []
    compared += [_BY_KNOCKOFFS] if of_knockoffs else []
    compared = [" ".join(compared)] if compared else []
    if not run["verdict"]["stands"]:
        return [
            "No verdict is given, for the reason that the text below the title names.",
            *compared,
            "This says nothing about whether any candidate was trained on.",
            "The assumptions below are those that a verdict would need.",
            "To get a verdict, run the audit with another procedure, in another output folder."
            if decision["method"] in WITHDRAWN
            else "To get a verdict, prepare calibration items and candidates by one rule, as the warnings say, and "
            "repeat the command at the end of this page with another output folder. Do so once: checks say nothing "
            "about data that were changed until they passed.",
        ]
    lines = ["The text below the title is the verdict. It holds only if the assumptions below hold.", *compared]
    if decision["guarantee"]["kind"] == "none":
        lines.append(f"The error rate is unknown: any number of the selected {several} may be wrong.")
    elif decision["num_selected"]:
        lines.append(f"The error rate is that of the list of selected {several}. No single {one} on it is proven.")
    else:
        lines.append(
            f"That nothing is selected rules nothing out: candidates that {_SUBJECTS[decision['null']]} can be missed."
        )
    if run["checks"]:
        lines.append(
            "The checks are listed below. They cannot see a fault that calibration items and candidates share."
        )
    if decision["num_selected"]:
        lines.append(
            "Let someone who knows the material look at some of the selected items. If they share a topic, date or "
            "source that the other candidates lack, the score may have found that instead of training data."
        )
    return lines


_CANDIDATES = "Candidates are the items in question."
_COMPARED = {
    "nonmember": "Calibration items were given as items that were not in the training data; the scores of the "
    "candidates are compared with theirs.",
    "member": "Calibration items were given as items that were in the training data; the scores of the candidates are "
    "compared with theirs.",
}
_BY_KNOCKOFFS = "The score of each is compared with those of its knockoffs, stand-ins such as paraphrases."


def _terms(run: Mapping[str, Any]) -> Help:
    """At most six terms; lines that use any other explain it."""
    decision, guarantee = run["decision"], run["decision"]["guarantee"]
    member, *others = _GLOSSARY
    rate = ("GCR", _GCR) if guarantee["controls"].startswith("GCR") else ("FDR", _FDR[decision["unit"] == "cluster"])
    if _GIVEN in guarantee["controls"]:
        rate = "FDR", f"{rate[1].removesuffix(_OF_ALL)} with one calibration sample"
    return Help("Terms", (member, rate, *others, ("adjusted p-value", _ADJUSTED[guarantee["levels"]])), folded=True)


_GLOSSARY = (
        ("member", "an item that the model was trained on; all others are non-members, or clean"),
        ("level, alpha", "the largest error rate that was accepted beforehand"),
        ("exchangeable", "of items: any order of them would have been equally likely, as after shuffling; what one "
         "preparation or one source does to all alike does not disturb it"),
        ("p-value", "the probability of a score at least as extreme as that of the item if the null hypothesis holds "
         "for it; not the probability that the hypothesis holds"),
)  # fmt: skip
_ADJUSTED = {
    "any": "the smallest level at which the item would be selected, had that level been fixed beforehand",
    "one": "a number that is at most the level of this audit if the item is selected, and above it if not",
}
_GIVEN, _OF_ALL = "given the calibration sample", " of the whole audit"
_FDR = (
    "false discovery rate: the fraction of false items in the list, 0 for an empty list, averaged over repetitions of "
    "the whole audit",
    "false discovery rate: the fraction of the selected clusters that have no member, 0 for an empty list, averaged "
    "over repetitions of the whole audit",
)
"""Of items, and of clusters."""
_GCR = (
    "global contamination rate: the fraction of the list that at least one of the models was trained on, 0 for an "
    "empty list, averaged over repetitions of the whole audit"
)


def _pictures(run: Mapping[str, Any], items: Mapping[str, Any], calibration: Mapping[str, Any] | None) -> list[Section]:
    decision, pictures = run["decision"], list[Section]()
    column, method = decision["columns"][0], decision["method"]
    one_by_one = not _clustered(decision)
    cut = decision["score_cut"] if one_by_one and method.startswith(("ptdi/", "conditional/")) else None
    if len(decision["columns"]) == 1 and _known((calibration or {}).get(column, ())) and _known(items[column]):
        pictures.append(
            Figure(
                "Scores",
                f"Distribution of the score {column} among calibration items and candidates"
                + ("." if cut is None else "; the least extreme selected score is a vertical line."),
                functools.partial(_drawn, "scores", items, calibration, column, cut),
            )
        )
    if method in _OF_W and _known(items.get("statistic", ())):
        plus = " plus one" if run["options"].get("offset", 1) else ""
        divided = ", divided by the number of knockoffs of an item" if method == "ktd/multi" else ""
        pictures.append(
            Figure(
                "Knockoff statistics",
                f"Number of candidates whose {_OF_W[method]} is at least t, and number at most -t. The rule's estimate "
                f"of the false ones among the first is the second{plus}{divided}. "
                f"{_are_selected(decision)}.",
                functools.partial(_drawn, "statistics", items, decision),
            )
        )
    if _known(items["p_value"]):
        line = one_by_one and (method in _STEP_UPS or method.startswith("conditional/"))
        pictures.append(
            Figure(
                "P-values",
                "Fraction of candidates with a p-value of at most t"
                + (", and the line that the step-up procedure compares it with" if line else "")
                + f"; {_are_selected(decision)}.",
                functools.partial(_drawn, "p_values", items, decision, line),
            )
        )
    if "fdp_bound" in items:
        level = f"{100 * (1 - run['certificate']['delta']):g}%"
        pictures.append(
            Figure(
                "Bound for every cut",
                "Upper bound on the false discovery proportion of the k most extreme candidates, for all k at once "
                f"with confidence {level}.",
                functools.partial(_drawn, "bounds", items, decision),
            )
        )
    return pictures


def _are_selected(decision: Mapping[str, Any]) -> str:
    return counted(decision["num_selected"], ("candidate is selected", "candidates are selected"))


def _known(values: Any) -> bool:
    """True if a column has a number."""
    return bool((numbers(values, np.arange(len(values))) < math.inf).any())


def _drawn(name: str, *arguments: Any) -> Any:
    from tdd.report import audit_plots

    return getattr(audit_plots, name)(*arguments)


def _checks(run: Mapping[str, Any]) -> Table:
    checks, rows = run["checks"], []
    for name, (title, words) in _FINDINGS.items():
        if name not in checks:
            continue
        check, added = checks[name], {}
        if name == "resolution":
            smallest = check["smallest_p_value"]
            added["smallest"] = "" if smallest is None else f"smallest p-value {smallest:.3g}; "
            added["reach"] = _reach(check["min_selections"], run["decision"]["num_tests"])
        if name == "long_texts":
            added["alike"] = ", knockoffs alike" if "knockoff_texts" in checks else ""
        if name == "flags":
            count = check["num_calibration_flagged"]
            calibrating = "" if count is None else f", {count} of {check['num_calibration']} calibration items"
            added["calibrating"] = calibrating
        finding = "not run" if check.get("unchecked") else words.format(**check, **added)
        warned, tone = ("see warnings", "warning") if check["warning"] else ("none", "plain")
        rows.append(Row((title, finding, warned), tone))
    return Table("Checks", (Column("check"), Column("result"), Column("warning")), tuple(rows))


def _reach(fewest: int, num_tests: int) -> str:
    if fewest > num_tests:
        return "nothing can be selected"
    return f"selections of fewer than {fewest} cannot occur" if fewest > 1 else "a single item can be selected"


_FINDINGS = {
    "resolution": ("resolution", "{smallest}{reach}"),
    "effective_calibration": (
        "calibration items in use",
        "{size} of {num_given} items ({num_missing} without score, {num_repeated} repeated), {num_distinct} distinct "
        "scores",
    ),
    "repeated_value": ("values of the score", "{count} of {total} {role} have the same {score}"),
    "copied_scores": (
        "copies by their scores",
        "{count} of {total} {role} repeat {num_values} values of {score} that the other role hardly has",
    ),
    "direction": ("direction of the score", "{share:.0%} of pairs on the other side (p = {p_value:.1g})"),
    "symmetry": (
        "knockoff symmetry",
        "p = {p_value:.3g} on {num_items} known non-members; {num_leaning} of them look like members (about "
        "{expected:.0f} would by chance)",
    ),
    "knockoff_texts": (
        "knockoffs as texts",
        "of {num_items} items {num_unchanged} with the text unchanged, {num_repeated} with equal knockoffs, "
        "{num_foreign} with another item's text",
    ),
    "long_texts": ("texts cut at the context", "{num_cut} of {num_texts} texts{alike}"),
    "flags": ("flagged items", "{num_flagged} of {num_candidates} candidates{calibrating}"),
    "duplicates": ("copies across the two sets", "{num_exact_pairs} exact and {num_near_pairs} near pairs"),
    "overlap": (
        "passages across the two sets",
        "{num_calibration} calibration items and {num_candidates} candidates share 30 words in a row",
    ),
    "sharing": (
        "items shared by the two sets",
        "{num_shared}, against about {expected:.0f} in random divisions (p = {p_value:.3g})",
    ),
    "preparation": (
        "preparation of items",
        "marks of whole items compared: {num_marks}; smallest adjusted p = {p_value:.3g}",
    ),
    "cluster_sizes": (
        "sizes of clusters",
        "{mean_calibration:.3g} calibration items a cluster, {mean_candidates:.3g} candidates (p = {p_differ:.3g}); "
        "rank correlation of size and score {correlation:.2f} (p = {p_related:.3g})",
    ),
    "blind_baseline": (
        "blind baseline",
        "AUC {auc:.3f} without the model (0.5 is chance), permutation p = {p_value:.3g}",
    ),
}
"""Check -> its title, and its finding in words with the fields of its record."""


def _bounds(certificate: Mapping[str, Any], decision: Mapping[str, Any]) -> Section:
    """The simultaneous bounds: what can be said of every cut at once."""
    title = "Bounds that hold for all lists at once"
    if not certificate["applies"]:
        return Points(title, (f"No bound: {certificate['reason']}",))
    least = certificate["min_alternatives"]
    counted = (
        f", and at least {least} of the {decision['num_tests']} candidates {_SUBJECTS[decision['null']]}"
        if least
        else ""
    )
    return Table(
        title,
        (Column("list"), *(Column(name, number=True) for name in ("items", "at most false", "fraction"))),
        tuple(
            Row((cut["list"], str(cut["size"]), str(cut["max_false"]), f"{100 * cut['bound']:.1f}%"))
            for cut in certificate["cuts"]
        ),
        f"If the assumptions hold, then with confidence {100 * (1 - certificate['delta']):g}% all rows hold at "
        f"once{counted} ({certificate['source']}).",
    )


def _rankings(ranked: Mapping[str, Any]) -> Table:
    """Rank of each model on every set of items, fraction of contaminated ones there, agreement with the reference."""
    rows = tuple(
        Row(
            (
                row["items"],
                str(row["count"]),
                *(() if row["fdp"] is None else (f"{row['fdp']:.3f}",)),
                "-" if row["srcc"] is None else f"{row['srcc']:.3f}",
                *("-" if rank is None else f"{rank:g}" for rank in row["ranks"]),
            )
        )
        for row in ranked["rows"]
    )
    labelled = ranked["rows"][0]["fdp"] is not None
    names = ("items", *(("contaminated",) if labelled else ()), "SRCC", *ranked["models"])
    by_threshold = any(row["items"].endswith("threshold (no guarantee)") for row in ranked["rows"])
    return Table(
        "Ranks of the models by their mean results",
        (Column("on"), *(Column(name, number=True) for name in names)),
        rows,
        f"1 is the best. SRCC is Spearman's correlation with the ranking on {ranked['reference']}; no error rate of a "
        "ranking is controlled." + (_BY_THRESHOLD if by_threshold else ""),
    )


_BY_THRESHOLD = (
    " A threshold has the highest accuracy on the known members and non-members; no error rate of the items that it "
    "keeps is controlled."
)


def _selected(run: Mapping[str, Any], items: Mapping[str, Any]) -> Table:
    """The selected items, at most 200 of them: beginning of the text, scores, p-value, fraction of false ones."""
    decision = run["decision"]
    columns, guarantee = decision["columns"], decision["guarantee"]
    every = most_extreme(items, columns, decision["null"])
    chosen, texts = every[:_LISTED].tolist(), dict(run.get("excerpts", ()))
    if "statistic" in items:
        columns = ("statistic", *columns)
    measured = [*columns, *(name for name in ("p_value", "adjusted") if _known(items[name]))]
    names: dict[str, str] = {"p_value": "p-value", "adjusted": "adjusted p-value"}
    shown: dict[str, Callable[[float], str]] = dict.fromkeys(measured, "{:.4g}".format)
    note = [_of_the_list(decision)]
    if "adjusted" in measured and guarantee["levels"] == "any":
        note.append(
            "The last column is the smallest level at which the item would have been selected, had that level been "
            "fixed before the scores were seen. It is not the probability that the item is false."
        )
    excerpts = [Column("text", excerpt=True)] if texts else []
    return Table(
        "Selected items",
        (Column("id"), *excerpts, *(Column(str(names.get(name, name)), number=True) for name in measured)),
        tuple(
            Row(
                (
                    spelled(str(items["id"][place])),
                    *(texts.get(str(items["id"][place]), "") for _ in excerpts),
                    *(shown[name](float(items[name][place])) for name in measured),
                )
            )
            for place in chosen
        ),
        " ".join(filter(None, note)),
        brief=_SHOWN,
        total=len(every),
    )


def _of_the_list(decision: Mapping[str, Any]) -> str:
    """How many of the list may be false; nothing where no bound of that is proven at these sizes."""
    guarantee, (one, several), bound = decision["guarantee"], _unit(decision).listed, _percent(decision["bound"])
    if not guarantee["controls"].startswith("FDR") or guarantee["kind"] != "finite-sample":
        return ""
    over = "over repetitions of the audit"
    if _GIVEN in guarantee["controls"]:
        over = "for a given calibration sample, with probability 1 - delta over such samples"
    count = decision["num_units_selected"]
    said = (
        f"If the assumptions hold, the false fraction of such lists is at most {bound} on average {over}; {bound} of "
        f"{counted(count, (one, several))} is {decision['bound'] * count:.3g}, and this list may hold more."
    )
    if decision["unit"] == "cluster":
        said += " A cluster is false if none of its items is a member; any other may contain non-members too."
    return said


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g}%"


def _examples(examples: Mapping[str, Any]) -> Table:
    """Two items for each check that found something."""
    rows = [
        Row((_FINDINGS[check][0] if not place else "", one["role"], spelled(one["id"]), one["text"]), ruled=place == 0)
        for check, found in examples.items()
        for place, one in enumerate(found)
    ]
    columns = (Column("check"), Column("role"), Column("id"), Column("text", excerpt=True))
    return Table("What the checks found, in two examples each", columns, tuple(rows))


def _count(used: int, missing: int) -> str:
    return f"{used}" + (f" ({missing} more have no score)" if missing else "")


def _unit(decision: Mapping[str, Any]) -> Unit:
    return unit_of(decision["null"], decision["unit"])


def _clustered(decision: Mapping[str, Any]) -> bool:
    """Whether items came in clusters, of which calibration counts, whatever is decided on."""
    return decision["method"].startswith("cluster_ptdi/")


def _proportion(decision: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The estimated proportion of members, or of clean items, where the procedure estimates it."""
    method, value = decision["method"], decision["proportion"]
    if not any(name in method for name in ("storey", "subtraction", "moment", "jecs")):
        return []
    shown = f"{value:.3f}" if value >= 0 else f"0 (estimate {value:.3f})"
    return [(f"fraction of {_unit(decision).found}", f"{shown}: an estimate within the procedure, not a result")]
