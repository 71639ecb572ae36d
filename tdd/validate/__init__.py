"""`InputError`, and the checks that several rooms share; a check with one caller lives beside it.

`errors` (imports no JAX), `arrays` (the statistics), `checkpoints` (model folders), `files` (JSON and .npz). They raise
`InputError`, a ValueError whose text names the argument, the offending value and the way out; the command line prints
it without a traceback.
"""

from tdd.validate.errors import InputError

__all__ = ["InputError"]
