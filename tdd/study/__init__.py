"""Monte Carlo studies of what the procedures promise."""
