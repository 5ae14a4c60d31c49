"""Python runs this at its start because `assay record` has put its folder at the head of PYTHONPATH."""

import importlib.abc
import importlib.util
import os
import sys
from importlib import import_module

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _here]
_own = sys.modules.pop("sitecustomize", None)
try:
    import_module("sitecustomize")  # the one that would have been run without us
except ImportError:
    if _own is not None:
        sys.modules["sitecustomize"] = _own


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Begins to record as soon as torch is imported: programs that never do are left alone."""

    def find_spec(self, name, path, target=None):  # type: ignore[no-untyped-def]
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            execute(module)
            try:
                from assay.torch._program import begin
            except ImportError as error:
                told = f"nothing is recorded: {error}; pip install assay where {sys.executable} finds it"
                print(f"assay: {told}", file=sys.stderr)
            else:
                begin()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get("ASSAY_RECORD_PROGRAM"):
    sys.meta_path.insert(0, _AfterTorch())
