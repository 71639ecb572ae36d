"""Texts → token rows → a model → token statistics → scores, through one engine and one store."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["scores"])
