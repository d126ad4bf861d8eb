"""Exact arithmetic by group, on Arrow arrays and NumPy's."""
