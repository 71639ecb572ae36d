"""scoring/scores."""
