"""Texts → token rows → a model → token statistics → scores, through one engine and one store."""
