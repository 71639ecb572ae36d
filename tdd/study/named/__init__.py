"""The named studies: each regenerates, in kind, a figure or table of the papers. Their modules are loaded on use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tdd.study.named.record import NamedStudy


class Title(NamedTuple):
    """One line about a study."""

    shows: str  # subject of the study
    figure: str  # figure or table of a paper that it regenerates
    module: str = ""  # module that holds it, if it is not the first word of its name


STUDIES: dict[str, Title] = {
    "ptdi-alpha": Title(
        "error, power and Hamming distance at every level, without and with the scaled p-values",
        "PTDI figure 1, tables 1, 8 and 9",
    ),
    "ptdi-pi": Title("error and power over the fraction of members among the candidates", "PTDI figure 4"),
    "ptdi-rho": Title("what few calibration items cost: spread of the error and power", "PTDI figure 5"),
    "ptdi-eta": Title("error and power over the size of the region of presumed non-members", "PTDI figure 8"),
    "ptdi-estimators": Title("estimates of the fraction of members against each other", "PTDI figure 6"),
    "ptdi-bias": Title("bias and mean squared error of the estimates of the fraction of members", "PTDI table 4"),
    "ktd-draws": Title("error and power over the number of knockoffs, by the law of the scores", "KTD figure 3"),
    "ktd-alpha": Title("error and power at every level, by the signal and the law of the scores", "KTD figure 1"),
    "ktd-tradeoff": Title("power against error over the levels, by the number of knockoffs", "KTD figure 4"),
    "ktd-signal": Title("power against error over the levels, by the signal", "KTD figure 5"),
    "ktd-baselines": Title("thresholds from validation items beside knockoffs", "KTD table 2"),
    "ktd-dilution": Title(
        "error and power if the training set is larger than its tested part", "KTD figure 10", "training_sets"
    ),
    "ktd-imbalance": Title("error and power if few candidates are members", "KTD figure 9", "training_sets"),
    "td4eval-alpha": Title("combinations of detectors at every level", "TD4Eval figure 4"),
    "td4eval-single": Title("each detector alone beside their combinations", "TD4Eval figure 2", "detectors"),
    "td4eval-noise": Title(
        "combinations of detectors and thresholds of single ones, with wrong labels in the calibration",
        "TD4Eval figure 3",
    ),
    "td4eval-weights": Title(
        "weights and power over the number of items, with the bound on the power",
        "TD4Eval lemma 2 and theorem 2",
        "weights",
    ),
    "td4eval-baselines": Title(
        "single detectors with thresholds from validation items, and combinations: FDR, power, ACC, AUC",
        "TD4Eval table 1",
    ),
    "jecs-compositions": Title("unions and intersections of selections against joint selections", "JECS table 1"),
    "jecs-k": Title("error and power over the number of models", "JECS figure 6"),
    "jecs-tau": Title("error and power over the threshold of the right tail", "JECS figure 5"),
    "jecs-training-fraction": Title(
        "error and power over the fraction of an audited block on which each model was trained",
        "JECS figure 5",
        "blocks",
    ),
    "exchange-shards": Title("size and power over the numbers of shards and shuffles", "exchangeability figure 3"),
    "exchange-tests": Title("size and power of the five tests on skewed shards", "exchangeability theorem 2, at work"),
}


def load(name: str) -> NamedStudy:
    """Load a study by its name.

    Raises:
      InputError: an unknown name.
    """
    if name not in STUDIES:
        from tdd.validate import InputError

        raise InputError(f"study {name!r} is not known; choose one of {', '.join(STUDIES)}")
    module = STUDIES[name].module or name.partition("-")[0]
    studies = importlib.import_module(f"tdd.study.named.{module}").STUDIES
    return next(study for study in studies if study.name == name)
