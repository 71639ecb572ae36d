"""The public names of `tdd.procedures`, each loaded on first use."""

from .conditional import ConditionalBH as ConditionalBH
from .evalues import average_e_values as average_e_values
from .jecs import JECS as JECS
from .jecs import JMCS as JMCS
from .ktd import KTD as KTD
from .several_scores import BestScore as BestScore
from .several_scores import CombinedScore as CombinedScore
from .td4eval import TD4Eval as TD4Eval
from .values import PTDI as PTDI
from .weighted import Weighted as Weighted
from .weighted import effective_sample_size as effective_sample_size
