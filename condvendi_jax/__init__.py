"""Prompt-aware diversity scores of generative models, in JAX.

H(X) = H(X|T) + I(X;T): how much of the diversity of outputs X the model adds, and how much it
owes to the prompts T. See the README for a tour, `evaluate` and `compare` for the scores with
errors in one call, and `decompose` for the scores alone.
"""

__version__ = "0.3.0"

import lazy_loader

# The stub beside this file lists the public names. A name is imported when it is first used, so
# that `import condvendi_jax` takes no time and the command line can be interrupted from the start.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
