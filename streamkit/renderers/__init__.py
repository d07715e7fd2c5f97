"""Renderers: handlers that show a stream to a person.

`ConsolePrinter` prints along, on anything that can be written to. `LiveDisplay` draws on a terminal, with Rich (the
extra `live`). Both are ordinary handlers, on either face. The rule: what a stream says is text; nothing of it is
interpreted as markup, and nothing of it reaches a terminal that the terminal would obey.
"""

from .console import ConsolePrinter
from .labels import STYLES, Label
from .live import LiveDisplay

__all__ = ["STYLES", "ConsolePrinter", "Label", "LiveDisplay"]
