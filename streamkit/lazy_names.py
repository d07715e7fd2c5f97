"""Names of a module that are imported when they are first read, so that importing the module costs less (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    module: str, submodules: Mapping[str, str], *, extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a module with such names.

    Type checkers are to see the names as imports under `TYPE_CHECKING`, and not these functions: to them, a module with a
    `__getattr__` has every name.

    Args:
        module: the module's `__name__`.
        submodules: for each name the module that has it, relative to this one's package: `{"Recorder": ".recorder"}`.
        extra: the extra that brings the packages which these modules import.
    """

    def get(name: str) -> Any:
        if name not in submodules:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(submodules[name], module), name)
        except ModuleNotFoundError as error:
            if extra is None or (error.name or "").startswith("streamkit"):
                raise
            needs = f"{module}.{name} needs the package `{error.name}`"
            raise ImportError(f"{needs}: pip install 'streamkit-sdk[{extra}]'") from error
        setattr(sys.modules[module], name, value)  # so that it is found there the next time
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *submodules})

    return get, names
