"""The results of `evaluate`, `compare` and the like: plain data that prints as text."""
