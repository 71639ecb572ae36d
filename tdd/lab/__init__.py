"""Controlled contamination: corpora, planted members, training. Ground truth for studies and the demonstration."""
