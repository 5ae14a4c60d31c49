"""Golden references, tolerances and alignment for training numerics.

>>> import assay
>>> x = [[1.0, 2.0, 3.0]]
>>> assay.judge("softmax", x, [[0.0900305732, 0.2447284711, 0.6652409558]]).passed
False
>>> assay.judge("softmax", x, assay.golden("softmax", x)["y"]).passed
True
"""

from . import gates, testing
from ._api import Case, bound, cases, diff, generate, golden, judge, policies, save_case, set_threads
from ._arrays import tensor
from ._core import Error, Tensor
from ._core import version as __version__
from ._declarations import Argument, Attribute, Operator, operator, operators
from ._dumps import Converted, Dump, Recorded, Tolerance, convert, inspect, tolerance
from ._order import Order, reveal_order
from ._verdict import Finding, Verdict
from .gates import audit, prove

__all__ = [
    "Argument",
    "Attribute",
    "Case",
    "Converted",
    "Dump",
    "Error",
    "Finding",
    "Operator",
    "Order",
    "Recorded",
    "Tensor",
    "Tolerance",
    "Verdict",
    "__version__",
    "audit",
    "bound",
    "cases",
    "convert",
    "diff",
    "gates",
    "generate",
    "golden",
    "inspect",
    "judge",
    "operator",
    "operators",
    "policies",
    "prove",
    "reveal_order",
    "save_case",
    "set_threads",
    "tensor",
    "testing",
    "tolerance",
]
