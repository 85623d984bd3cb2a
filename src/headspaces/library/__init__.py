"""The library: what ``import headspaces`` offers. Its names are listed in the package's own ``__init__``."""
