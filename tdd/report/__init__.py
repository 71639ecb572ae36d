"""Reports: what a run says, for people. A report is a function of run.json alone."""
