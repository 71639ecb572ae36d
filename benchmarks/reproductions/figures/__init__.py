"""One figure a reproduction, in a module of its name: `draw(outcome) -> tdd.report.plots.sheet.Sheet`."""
