"""How each data set was made: `python -m experiments.builders NAME` rebuilds it from its source."""
