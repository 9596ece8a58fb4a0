"""Errors, intervals and tests of numbers: arrays in, numbers out; on NumPy and SciPy alone."""
