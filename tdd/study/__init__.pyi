"""The public names of `tdd.study`, each loaded on first use."""

from .designs import CorrelatedDetectors as CorrelatedDetectors
from .designs import Design as Design
from .designs import JointLabels as JointLabels
from .designs import Mixture as Mixture
from .designs import NormalShift as NormalShift
from .designs import PairedScores as PairedScores
from .designs import Sample as Sample
from .designs import SkewedShards as SkewedShards
from .engine import run as run
from .joint import resample_joint as resample_joint
from .joint import simulate_joint as simulate_joint
from .methods import NAMES as NAMES
from .methods import StudyMethod as StudyMethod
from .methods import method as method
from .pool import Pool as Pool
from .pool import resample as resample
from .power.exchange import expected_exchange_power as expected_exchange_power
from .power.expected import expected_power as expected_power
from .power.scores import LabelledScores as LabelledScores
from .power.scores import NormalScores as NormalScores
from .power.shards import ShardEffect as ShardEffect
from .power.shards import ShardLogProbs as ShardLogProbs
from .results import QUANTILES as QUANTILES
from .results import StudyResult as StudyResult
