"""An older name of `streamkit.cli.prompt`, kept for programs that import it."""

from .cli.prompt import Asker

__all__ = ["Asker"]
