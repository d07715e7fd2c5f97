"""Open Interpreter's interface, over any model that streamkit's agents can use.

    from streamkit.compat.open_interpreter import interpreter  # was: from interpreter import interpreter

    interpreter.llm.model = "gpt-5-mini"
    for chunk in interpreter.chat("What is 34/24?", stream=True, display=False):
        ...

Chunks and messages have the form and the order of Open Interpreter 0.2 to 0.4, which need not be installed.
"""

from .interpreter import OpenInterpreter
from .llm import Llm

__all__ = ["Llm", "OpenInterpreter", "interpreter"]

interpreter = OpenInterpreter()
