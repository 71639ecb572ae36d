"""Every check of a value that a user can pass, and every message that goes with it.

One module an area: `arrays` (the statistics), `texts` and `tables` (input files), `checkpoints` (model folders),
`scoring`, `lab` and `runs` (options of those stages, output folders). All of them raise
`InputError`, a ValueError whose text names the argument, the offending value and the way out; the command line
prints it without a traceback.
"""

from tdd.validate.errors import InputError

__all__ = ["InputError"]
