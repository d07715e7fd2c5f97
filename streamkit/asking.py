"""The public name of `Asker`, the handler that asks at the terminal before code runs."""

from .cli.prompt import Asker

__all__ = ["Asker"]
