"""PyTorch's OpInfo entries as calls of assay's operators: what torch was asked, in assay's words."""

from . import arithmetic, arrangement, layers  # noqa: F401  they fill the entries
from .call import Call, NotACall, entries, leaves

__all__ = ["Call", "NotACall", "entries", "leaves"]
