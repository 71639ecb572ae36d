"""What this project is measured against: the same answers from NumPy, SciPy, statsmodels and knockpy.

Each peer takes one data set as NumPy arrays by the names of the kernel's arguments, and returns a dict of arrays with
the names that the case's own call returns. They are written as a careful user of those libraries would: vectorised
within a data set, one sort where one is enough, nothing computed that is not returned.
"""
