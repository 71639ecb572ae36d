"""Models of other libraries as `LanguageModel`: a plain function, linen, nnx, Equinox.

Every adapter puts what the model *is* (module, methods, options) into a hashable spec and what it has *learned* into
the parameters, which stay arguments of every compiled program: adapting the same model again compiles nothing, and no
weight becomes a constant of a program. Dropout is off, and leaves that are not trained get no gradient.
"""

from tdd.models.adapters.equinox import from_equinox
from tdd.models.adapters.function import FunctionSpec, check_causal, from_function
from tdd.models.adapters.linen import from_linen
from tdd.models.adapters.nnx import from_nnx

__all__ = ["FunctionSpec", "check_causal", "from_equinox", "from_function", "from_linen", "from_nnx"]
