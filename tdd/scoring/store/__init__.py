"""The score store: what a model said of each row of tokens, on disk, so that nothing is scored twice."""
