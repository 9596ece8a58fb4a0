"""What all studies share: flags, identity, saving and resuming, tables, figures and captions.

A new study is a module with a `Study` in the folder of a theme (docs/studies/your_own.md).
"""

import lazy_loader

# The stub beside this file lists the names. A name is imported when it is first used, so that a
# list of the studies, and the help of a command, need not wait for JAX.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
