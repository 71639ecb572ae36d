"""Token log-probabilities that somebody else computed: files of four layouts → `LogProbs`."""

from tdd.logprobs.read import FORMATS, Reading, ReadingOptions, read_log_probs
from tdd.logprobs.record import Entry, LogProbs

__all__ = ["FORMATS", "Entry", "LogProbs", "Reading", "ReadingOptions", "read_log_probs"]
