"""String fields out of JSON that is still streaming: the public name of `streamkit.core.json_fields`."""

from .core.json_fields import FieldText, JsonFields
from .core.json_paths import join_path, split_path

__all__ = ["FieldText", "JsonFields", "join_path", "split_path"]
