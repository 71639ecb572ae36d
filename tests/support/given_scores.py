"""Scores with the models and texts that they need."""

import dataclasses

from tdd.scoring.scores.score import as_scores, fields_of

FIELDS = ("reference", "corpus", "prefix", "member_prefix", "population", "tune_on")


def with_given(names, reference=None, **texts):
    """Column -> score, each with those of the models and texts that it has a field for."""
    found = {}
    for label, score in as_scores(names).items():
        fields = {name: what.kind for name, what in fields_of(score).items() if what is not None}
        given = {name: reference if kind == "model" else texts.get(name) for name, kind in fields.items()}
        found[label] = dataclasses.replace(score, **given)
    return found


def split(options):
    """The models and texts for scores, and the other options of a call."""
    given = {name: value for name, value in options.items() if name in FIELDS}
    return given, {name: value for name, value in options.items() if name not in FIELDS}
