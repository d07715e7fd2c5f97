"""Handlers that show a stream to a person.

`ConsolePrinter` prints to any file as the stream arrives. `LiveDisplay` draws on a terminal with Rich (the extra `live`);
`NotebookDisplay` updates the output of a notebook's cell. All are ordinary handlers, for sync and async streams. The rule: everything in a stream is text. None of it is
interpreted as markup, and none of it reaches a terminal as a sequence that the terminal would obey.
"""

from .console import ConsolePrinter
from .live import LiveDisplay
from .notebook import NotebookDisplay
from .printing import STYLES, Label

__all__ = ["STYLES", "ConsolePrinter", "Label", "LiveDisplay", "NotebookDisplay"]
