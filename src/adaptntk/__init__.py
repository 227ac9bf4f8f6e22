"""AdaptNTK: calibrated uncertainty and batch active learning from one trained neural-network potential.

The public names are listed in ``__init__.pyi`` and loaded on first use: torch and MACE take seconds to import,
and ``adaptntk --help`` needs neither.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
