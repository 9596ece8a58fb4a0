"""The benchmark on one GPU: the contests of `scaling` at larger n."""

from experiments import lab
from experiments.cost.scaling import Scaling


class Accelerator(Scaling):
    """How do speed, memory and accuracy of the library compare with its peers on one GPU?"""

    name = "accelerator"
    version = 1
    runs = ()  # None yet on a device of ours.
    drawings = ()

    smallest = 4000
    on = "accelerator"

    order_two_n: int = lab.flag(100_000, "The largest n of order 2.", at_least=2)
    exact_n: int = lab.flag(10_000, "The largest n of all eigenvalues.", at_least=2)
    measure_n: int = lab.flag(25_000, "The largest n of scores of order 1.", at_least=2)
