"""Several processes that share out one run: who they are, how they meet, and how they wait for one another.

Work is cut into numbered pieces. Every process knows all of them, computes those that it owns, and reads the others'
from a folder that all processes share. Nothing else passes between them, so a process that dies takes nothing with
it: the others compute its pieces, to the same bits, and it can be started again at any time.
"""

from tdd.processes.identity import Processes, current, initialize
from tdd.processes.meeting import Meeting
from tdd.processes.waiting import Watch

__all__ = ["Meeting", "Processes", "Watch", "current", "initialize"]
