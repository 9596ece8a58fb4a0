"""The scores where other packages use them: one function for finished runs, and adapters.

No package is imported before its part is. Each evaluation tool has a module of its name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
