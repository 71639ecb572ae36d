"""Contract entries of this area."""

ENTRIES = []

ELSEWHERE = {}
