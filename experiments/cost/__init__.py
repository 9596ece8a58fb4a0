"""Benchmarks: the time and the memory that scores and guidance take, beside other packages."""
