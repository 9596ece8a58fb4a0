"""What a traced program contains, sub-programs included."""

import jax


def equations(program):
    """All equations of a (closed) jaxpr and of every jaxpr inside their parameters."""
    for equation in getattr(program, "jaxpr", program).eqns:
        yield equation
        for parameter in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")
        ):
            if hasattr(parameter, "eqns") or hasattr(parameter, "jaxpr"):
                yield from equations(parameter)


def largest_array(function, *arguments):
    """The number of elements of the largest array that `function` makes."""
    program = jax.make_jaxpr(function)(*arguments)
    return max(v.aval.size for e in equations(program) for v in e.outvars)
