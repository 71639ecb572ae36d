"""Audits of the samples that lm-evaluation-harness logs: the scores come from the log-probabilities in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.audit.inputs import Inputs, Tables
from tdd.audit.logprobs import score_log_probs
from tdd.procedures.procedure import Procedure
from tdd.runs.folder import fingerprint
from tdd.texts import read_samples
from tdd.texts.samples import items
from tdd.validate import InputError

_OWNERS = ("candidate", "calibration", "member")
_WITHOUT_MODEL = ("reference", "progress")


def check_samples(format: str | None, procedure: Procedure, scoring: Mapping[str, Any], shard: Any) -> None:
    """Check that an audit without a model can be one of samples, and has no options of scoring under a model.

    Raises:
      InputError: another format; a procedure that needs scores of knockoffs; options that need a model.
    """
    if format != "lm-eval":
        raise InputError(
            "model is None; give a checkpoint, or samples of lm-evaluation-harness, which hold log-probabilities "
            '(format="lm-eval"; tdd audit --lm-eval SAMPLES)'
        )
    if "knockoffs" in procedure.needs:
        raise InputError(
            f"method {procedure.name!r} needs the scores of knockoffs, which samples of lm-evaluation-harness do not "
            "hold; give a model"
        )
    given = [name for name, value in scoring.items() if name not in _WITHOUT_MODEL and value not in (None, False)]
    if given or shard is not None:
        name = given[0] if given else "shard"
        raise InputError(
            f"{name} has no use for samples of lm-evaluation-harness, which have their scores; leave it out"
        )


class Scored(NamedTuple):
    """The scores of samples."""

    tables: Tables  # the columns by owner
    details: list[dict[str, Any]]  # what describes them, as one model's provenance
    num_texts: int  # scored items
    identity: dict[str, Any]  # the samples in the place of a model
    # what is assumed of the samples
    assumes: str = "the samples of candidates and calibration items are of one model, asked alike (template, examples)"


def score_samples(
    inputs: Inputs, sources: Sequence[Any], names: list[str], reference: Any, id_field: str | None
) -> Scored:
    """Score the items of every role by `names`, from the samples of candidates, calibration items and members.

    `reference` has the samples of all items under a reference model; `id_field` is the one that ids come from.

    Raises:
      InputError: as `tdd.score_log_probs`.
    """
    tables: Tables = {}
    details = {}
    other = None if reference is None else read_samples(reference)
    for role, texts in inputs.roles.items():
        rows = read_samples(sources[_OWNERS.index(role.owner)])
        scored = score_log_probs(rows, names, reference=other, format="lm-eval", id_field="id")
        place = {str(name): index for index, name in enumerate(items(rows).column(id_field or "id"))}
        chosen = np.array([place[identifier] for identifier in texts.ids])
        tables[role.owner] = {name: column[chosen] for name, column in scored.values.items()}
        details[role.owner] = dict(scored.provenance)
    hashes = {owner: detail["log_probs"]["sha256"] for owner, detail in details.items()}
    if other is not None:
        hashes |= {f"reference of {owner}": detail["reference"]["sha256"] for owner, detail in details.items()}
    identity = {"name": "samples of lm-evaluation-harness", "revision": None, "sha256": fingerprint(hashes)}
    return Scored(tables, [details], sum(map(len, inputs.roles.values())), identity)
