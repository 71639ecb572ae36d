"""Was a data set in the training data? The test of canonical order, run on a model."""
