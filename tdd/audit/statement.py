"""What a run says in words: its outcome, what it assumes, what it leaves open."""

from __future__ import annotations

from collections.abc import Sequence

from tdd.audit.certificates import Certificate
from tdd.audit.decide import Decision, level_in_words

__all__ = ["groups_warning", "open_points", "outcome"]

_FOUND = {
    ("nonmember", "item"): ("candidates", "selected as training data", "non-members among the selected"),
    ("nonmember", "drawn"): ("drawn candidates", "selected as training data", "non-members among the selected"),
    ("nonmember", "cluster"): (
        "clusters",
        "selected as training data",
        "clusters without any member among the selected clusters",
    ),
    ("member", "item"): ("candidates", "selected as clean", "contaminated items among the selected"),
}


_SETS = {"nonmember": "were in the training data", "member": "are clean"}


def outcome(decision: Decision, certificate: Certificate, failed: Sequence[str]) -> str:
    """The answer for the set, where there is one, and that for single items with its error rate; or why there is none.

    "How many of them?" and "which of them?" are two questions: far more items may be shown to be among the candidates
    than can be named.
    """
    if failed:
        return (
            f"No verdict: {'; '.join(failed)}. What the procedure selects has no known error rate then; it stands in "
            "items.csv, and is no finding. Mend the data and run again: see the warnings."
        )
    return _of_set(decision, certificate) + _of_items(decision)


def _of_set(decision: Decision, certificate: Certificate) -> str:
    """How many of the candidates, at least, with confidence; empty where nothing is known."""
    least, m = certificate.min_alternatives, decision.num_tests
    if not certificate.applies or not least or decision.guarantee.kind != "finite-sample":
        return ""
    confidence = f"{100 * (1 - certificate.delta):g} %"
    return (
        f"At least {least} of the {m} candidates ({least / m:.0%}) {_SETS[decision.null]}, with confidence "
        f"{confidence}. Which of them is another question: "
    )


def _of_items(decision: Decision) -> str:
    """The selection and its error rate in two sentences."""
    level = level_in_words(decision.alpha)
    units, selected_as, errors = _FOUND[decision.null, decision.unit]
    found = (
        f"{decision.num_units_selected} of {decision.num_units} {units} are {selected_as}"
        if decision.num_units_selected
        else f"None of {decision.num_units} {units} is {selected_as}"
    )
    if decision.unit == "cluster" and decision.num_units_selected:
        found += f" ({decision.num_selected} candidates)"
    if decision.guarantee.kind == "none":
        return f"{found} at level {level}. This procedure carries no guarantee."
    if not decision.guarantee.controls.startswith(("FDR", "GCR")):
        return f"{found} at level {level}. What is known of its errors: {decision.guarantee.controls}."
    if "given the calibration sample" in decision.guarantee.controls:
        return (
            f"{found} at level {level}. If the assumptions hold, {decision.guarantee.controls}; over repetitions of "
            "the whole audit, calibration sample included, it is at most alpha + delta."
        )
    how = "" if decision.guarantee.kind == "finite-sample" else " when items are many (an asymptotic statement)"
    bound = level if decision.bound == decision.alpha else f"{100 * decision.bound:.3g} %"
    return (
        f"{found} at level {level}. If the assumptions hold, the expected share of {errors}, "
        f"over repetitions of the whole audit, is at most {bound}{how} ({decision.guarantee.controls})."
    )


def groups_warning(method: str, num_items: int, num_groups: int) -> str:
    """What a reader must know where items come in groups and the method takes them one by one."""
    return (
        f"the {num_items} items come from {num_groups} groups; {method} takes items as exchangeable one by one, which "
        "items of one group are not, so the error can exceed the level"
    )


def open_points(
    decision: Decision, failed: Sequence[str], *, texts: bool, groups_ignored: bool, symmetry_tested: bool
) -> Sequence[str]:
    """What the run does not establish."""
    points = [
        "The level bounds an average over repetitions. The share of errors in this one list can be larger or smaller.",
    ]
    if failed:
        points = ["Which candidates were trained on, and how many: no verdict is given."]
    elif not decision.num_selected:
        points = ["Nothing was selected, so there is no list whose errors could be counted."]
    if decision.num_calibration:
        kind = "were not in the training data" if decision.null == "nonmember" else "were in the training data"
        points.append(
            f"That the calibration items {kind} is taken from whoever supplied them; no computation can check it."
        )
    else:
        points.append(
            "That the model treats a non-member and its knockoffs alike is taken from whoever made the knockoffs. A "
            "model can prefer the style of the originals to that of paraphrases without having seen these texts; then "
            "more of the selected are wrong than the level says. "
            + (
                "The symmetry test on known non-members can contradict the assumption and cannot prove it."
                if symmetry_tested
                else "Known non-members with knockoffs made the same way would allow a test of it, and "
                'rule="conformal", which does not need it.'
            )
        )
    points.append(
        "A candidate that is not selected is not shown to be absent from the training data."
        if decision.null == "nonmember"
        else "A candidate that is not selected is not shown to be contaminated."
    )
    if not texts:
        points.append(
            "Only scores were seen: duplicates and differences in content between calibration and candidates could not "
            "be looked for."
        )
    if decision.unit == "cluster":
        points.append(
            "Clusters are decided on, not their items: a selected cluster is not one of non-members only, and which of "
            "its items are members is left open."
        )
    if groups_ignored:
        points.append(
            "Items come in groups. The guarantee takes items as exchangeable one by one; within groups they may not be."
        )
    return points
