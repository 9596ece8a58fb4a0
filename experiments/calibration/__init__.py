"""Studies of what a score means: bandwidths, known counts, and the judgements of people."""
