"""Plots of studies: for print, for colour-blind readers, and the same bytes every time."""
