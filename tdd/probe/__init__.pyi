"""The public names of `tdd.probe`, each loaded on first use."""

from .adapters import levanter_hook as levanter_hook
from .adapters import logged as logged
from .adapters import periodic_action as periodic_action
from .adapters import tunix_hooks as tunix_hooks
from .adapters import write_scalars as write_scalars
from .benchmark import Leak as Leak
from .benchmark import contamination as contamination
from .checkpoints import over_checkpoints as over_checkpoints
from .evidence import Evidence as Evidence
from .evidence import ProbeRecord as ProbeRecord
from .evidence import ProbeResult as ProbeResult
from .evidence import ProbeState as ProbeState
from .gradients import example_grad_norms as example_grad_norms
from .gradients import gradient_norm as gradient_norm
from .gradients import quantiles as quantiles
from .gradients import record_grad_norms as record_grad_norms
from .order import OrderGuard as OrderGuard
from .probe import Probe as Probe
from .stream import StreamGuard as StreamGuard
