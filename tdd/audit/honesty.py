"""The honesty checks of an audit: what the texts and the sizes say before any model is looked at.

Each check returns a frozen record of plain numbers with a `warning`, empty where all is well; nothing is printed.
"""

from tdd.audit.blind_baseline import BlindBaseline, blind_baseline
from tdd.audit.duplicates import DuplicatePair, Duplicates, duplicates
from tdd.audit.overlap import Overlap, overlap
from tdd.audit.resolution import EffectiveCalibration, Resolution, effective_calibration_size, resolution
from tdd.audit.sharing import Sharing, sharing

__all__ = [
    "BlindBaseline",
    "DuplicatePair",
    "Duplicates",
    "EffectiveCalibration",
    "Overlap",
    "Resolution",
    "Sharing",
    "blind_baseline",
    "duplicates",
    "effective_calibration_size",
    "overlap",
    "resolution",
    "sharing",
]
