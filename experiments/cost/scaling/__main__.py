"""`python -m experiments.scaling`: minutes; with --full, hours."""

from experiments import lab
from experiments.cost.scaling.study import Scaling

if __name__ == "__main__":
    lab.main(Scaling)
