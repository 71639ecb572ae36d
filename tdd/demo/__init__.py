"""The embedded default: a small checkpoint, and texts of which it is known whether it was trained on them."""
