"""Measurements: throughput beside peers, the papers' experiments on small models, the scripts behind the tables."""
