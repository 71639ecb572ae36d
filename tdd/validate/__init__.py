"""Every check of a value that a user can pass, and every message that goes with it.

One module an area: `arrays` (the statistics), `texts` (input files), `checkpoints` (model folders), `runs`
(run folders and options). All of them raise `InputError`, a ValueError whose text names the argument, the
offending value and the way out; the command line prints it without a traceback.
"""

from tdd.validate.errors import InputError

__all__ = ["InputError"]
