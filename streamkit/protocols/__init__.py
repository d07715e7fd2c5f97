"""The wire protocols: what a decoder and an encoder are, and where they are found.

A protocol is one package with a class `Decoder`, a class `Encoder` and a function `to_input`. streamkit's own are in
the registry's table; others register an entry point in the group `streamkit.protocols`, whose name is the protocol's and
whose value is the module.
"""

from .base import Decoder, Encoder
from .registry import BUILT_IN, asking, find, gating, names, recognise, to_input
from .values import is_list, is_object

__all__ = [
    "BUILT_IN",
    "Decoder",
    "Encoder",
    "asking",
    "find",
    "gating",
    "is_list",
    "is_object",
    "names",
    "recognise",
    "to_input",
]
