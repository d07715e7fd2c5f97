"""Open Interpreter's interface, over any model that streamkit's agents can ask.

    from streamkit.compat.open_interpreter import interpreter  # was: from interpreter import interpreter

    interpreter.llm.model = "gpt-5-mini"
    for chunk in interpreter.chat("What is 34/24?", stream=True, display=False):
        ...

Chunks and messages are those of 0.2 to 0.4, in their order. Nothing of the original is imported.
"""

from .interpreter import OpenInterpreter
from .llm import Llm

__all__ = ["Llm", "OpenInterpreter", "interpreter"]

interpreter = OpenInterpreter()
