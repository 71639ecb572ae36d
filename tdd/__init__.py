"""Training-data detection with a controlled error rate.

Texts → TokenBatch → TokenStats → Scores → PValues → Selection → Report. The public names below are loaded on first
use: `import tdd` itself imports neither jax nor flax nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tdd import probe, study
    from tdd.audit.logprobs import score_log_probs
    from tdd.audit.run import run_audit
    from tdd.audit.score import score
    from tdd.audit.select import select
    from tdd.exchange.run import run_exchange
    from tdd.methods.anytime import trajectory_test
    from tdd.methods.best_score import best_score
    from tdd.methods.bounds import dkw_fdp_bounds, fdp_bounds, fdp_bounds_of_ranks, fdp_template, knockoff_fdp_bounds
    from tdd.methods.clusters import cluster_ptdi, hierarchical_p_values, mondrian_p_values
    from tdd.methods.combining import combine_p_values
    from tdd.methods.conditional import calibration_conditional_p_values
    from tdd.methods.evalues import average_e_values, closed_e_bh, conformal_e_values, e_bh
    from tdd.methods.exchangeability import exchangeability
    from tdd.methods.jecs import jecs, jmcs
    from tdd.methods.ktd import knockoff_symmetry, ktd
    from tdd.methods.local_fdr import local_fdr
    from tdd.methods.martingale import conformal_martingale, online_conformal_p_values, shiryaev_roberts
    from tdd.methods.online import e_lond, lond, lord_plus_plus, saffron
    from tdd.methods.online_streams import online_test
    from tdd.methods.ptdi import ptdi
    from tdd.methods.sequential import exchangeability_sequence
    from tdd.methods.shuffles import shuffles_needed
    from tdd.methods.td4eval import td4eval
    from tdd.methods.testing import (
        bh,
        bonferroni,
        by,
        conformal_p_values,
        hochberg,
        holm,
        holm_sidak,
        hommel,
        rejections,
        sidak,
        storey_bh,
        two_stage_bh,
    )
    from tdd.methods.weighted import effective_sample_size, weighted_conformal_p_values, weighted_conformal_selection
    from tdd.models.adapters import check_causal, from_equinox, from_function, from_haiku, from_linen, from_nnx
    from tdd.models.checkpoint import load
    from tdd.probe.probe import Probe
    from tdd.records import LanguageModel, Scores, Selection, TestResult, Texts
    from tdd.scoring.gradients import grad_norms
    from tdd.scoring.token_stats import token_stats
    from tdd.study.power.exchange import expected_exchange_power
    from tdd.study.power.expected import expected_power
    from tdd.tables import load_score_table
    from tdd.texts import load_texts
    from tdd.validate import InputError

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "LanguageModel",
    "Probe",
    "Scores",
    "Selection",
    "TestResult",
    "Texts",
    "__version__",
    "average_e_values",
    "best_score",
    "bh",
    "bonferroni",
    "by",
    "calibration_conditional_p_values",
    "check_causal",
    "closed_e_bh",
    "cluster_ptdi",
    "combine_p_values",
    "conformal_e_values",
    "conformal_martingale",
    "conformal_p_values",
    "dkw_fdp_bounds",
    "e_bh",
    "e_lond",
    "effective_sample_size",
    "exchangeability",
    "exchangeability_sequence",
    "expected_exchange_power",
    "expected_power",
    "fdp_bounds",
    "fdp_bounds_of_ranks",
    "fdp_template",
    "from_equinox",
    "from_function",
    "from_haiku",
    "from_linen",
    "from_nnx",
    "grad_norms",
    "hierarchical_p_values",
    "hochberg",
    "holm",
    "holm_sidak",
    "hommel",
    "jecs",
    "jmcs",
    "knockoff_fdp_bounds",
    "knockoff_symmetry",
    "ktd",
    "load",
    "load_score_table",
    "load_texts",
    "local_fdr",
    "lond",
    "lord_plus_plus",
    "mondrian_p_values",
    "online_conformal_p_values",
    "online_test",
    "probe",
    "ptdi",
    "rejections",
    "run_audit",
    "run_exchange",
    "saffron",
    "score",
    "score_log_probs",
    "select",
    "shiryaev_roberts",
    "shuffles_needed",
    "sidak",
    "storey_bh",
    "study",
    "td4eval",
    "token_stats",
    "trajectory_test",
    "two_stage_bh",
    "weighted_conformal_p_values",
    "weighted_conformal_selection",
]

_HOMES = {
    "tdd.audit.logprobs": ("score_log_probs",),
    "tdd.audit.run": ("run_audit",),
    "tdd.audit.score": ("score",),
    "tdd.audit.select": ("select",),
    "tdd.exchange.run": ("run_exchange",),
    "tdd.methods.anytime": ("trajectory_test",),
    "tdd.methods.bounds": (
        "dkw_fdp_bounds",
        "fdp_bounds",
        "fdp_bounds_of_ranks",
        "fdp_template",
        "knockoff_fdp_bounds",
    ),
    "tdd.methods.clusters": ("cluster_ptdi", "hierarchical_p_values", "mondrian_p_values"),
    "tdd.methods.combining": ("combine_p_values",),
    "tdd.methods.conditional": ("calibration_conditional_p_values",),
    "tdd.methods.best_score": ("best_score",),
    "tdd.methods.evalues": ("average_e_values", "closed_e_bh", "conformal_e_values", "e_bh"),
    "tdd.methods.exchangeability": ("exchangeability",),
    "tdd.methods.jecs": ("jecs", "jmcs"),
    "tdd.methods.ktd": ("knockoff_symmetry", "ktd"),
    "tdd.methods.local_fdr": ("local_fdr",),
    "tdd.methods.martingale": ("conformal_martingale", "online_conformal_p_values", "shiryaev_roberts"),
    "tdd.methods.online": ("e_lond", "lond", "lord_plus_plus", "saffron"),
    "tdd.methods.online_streams": ("online_test",),
    "tdd.methods.ptdi": ("ptdi",),
    "tdd.methods.sequential": ("exchangeability_sequence",),
    "tdd.methods.shuffles": ("shuffles_needed",),
    "tdd.methods.td4eval": ("td4eval",),
    "tdd.methods.testing": (
        "bh",
        "bonferroni",
        "by",
        "conformal_p_values",
        "hochberg",
        "holm",
        "holm_sidak",
        "hommel",
        "rejections",
        "sidak",
        "storey_bh",
        "two_stage_bh",
    ),
    "tdd.methods.weighted": ("effective_sample_size", "weighted_conformal_p_values", "weighted_conformal_selection"),
    "tdd.models.adapters": ("check_causal", "from_equinox", "from_function", "from_haiku", "from_linen", "from_nnx"),
    "tdd.models.checkpoint": ("load",),
    "tdd.probe.probe": ("Probe",),
    "tdd.records": ("LanguageModel", "Scores", "Selection", "TestResult", "Texts"),
    "tdd.scoring.gradients": ("grad_norms",),
    "tdd.scoring.token_stats": ("token_stats",),
    "tdd.study.power.exchange": ("expected_exchange_power",),
    "tdd.study.power.expected": ("expected_power",),
    "tdd.tables": ("load_score_table",),
    "tdd.texts": ("load_texts",),
    "tdd.validate": ("InputError",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_PACKAGES = ("probe", "study")


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it, once."""
    if name in _PACKAGES:
        return importlib.import_module(f"tdd.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'tdd' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def _kernel(name: str) -> Any:
    """`tdd.kernels.stepup` without an import statement."""
    try:
        return importlib.import_module(f"tdd.kernels.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module 'tdd.kernels' has no attribute {name!r}") from error


vars(importlib.import_module("tdd.kernels"))["__getattr__"] = _kernel  # a namespace package: no code runs


def __dir__() -> list[str]:
    return sorted(__all__)
