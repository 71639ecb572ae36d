"""Audits: texts or scores → decision with its guarantee, diagnostics, run folder."""
