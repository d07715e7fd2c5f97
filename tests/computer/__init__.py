"""The computer's tests are skipped where its extra is not installed."""

import pytest

for _module in ("psutil", "IPython"):
    pytest.importorskip(_module, reason=f"needs {_module}: pip install 'streamkit-sdk[computer]'")
