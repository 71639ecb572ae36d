"""Designs: frozen values that draw data sets with a known truth.

Sizes, names of laws and the direction of the null are static; other numbers are data, so that one compiled program
serves a grid over them. Scores are loss-like: lower = more member-like.
"""

from tdd.study.designs.resampled import Pool
from tdd.study.designs.shards import SkewedShards
from tdd.study.designs.synthetic import CorrelatedDetectors, JointLabels, Mixture, NormalShift, PairedScores

__all__ = ["CorrelatedDetectors", "JointLabels", "Mixture", "NormalShift", "PairedScores", "Pool", "SkewedShards"]
