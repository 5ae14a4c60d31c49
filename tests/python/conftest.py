import os

import pytest

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    # The package of the build tree has no entry points.
    if not config.pluginmanager.has_plugin("assay_pytest") and not config.pluginmanager.has_plugin("assay"):
        raise pytest.UsageError("the plugin is not loaded; expected -p assay_pytest, or the installed package")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    config.addinivalue_line("markers", "slow: takes many seconds where others resemble it; run by tools/test slow")
