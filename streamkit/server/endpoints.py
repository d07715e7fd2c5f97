"""`Endpoints`: how an app answers the clients of model APIs, with an agent in the model's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from ..errors import UsageError
from ..protocols.answer_activity import Activity

__all__ = ["Endpoints"]

Questions = Literal["decline", "ask"]
System = Literal["append", "ignore"]


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoints under `/v1`, of `create_app(endpoints=)`.

        create_app(make_agent, token=TOKEN, endpoints=Endpoints(models=["agent", "agent-tasks"], activity="reasoning"))

    Attributes:
        models: the names under which clients find the agent; the factory sees which in `context.model`. "*" takes
            any name, and lists none.
        activity: how answers show what the agent calls and runs itself: `hidden`, not at all; `reasoning`, which chat interfaces
            fold; `text`. Never as calls: clients run or refuse each call that they see.
        questions: what happens where a call or code has to be confirmed. `decline`: it is declined at once, which the model reads
            and answers to. `ask`: the answer ends with the question, and the user's next message answers it.
        system: whether the client's system prompt is put after the agent's instructions, `append`, or has no effect, `ignore`.
        options: the canonical names of further fields of requests, such as `temperature` and `max_output_tokens`, that the factory
            applies: it finds them in `context.options`.

    Raises:
        UsageError: an argument is none of these.
    """

    models: Sequence[str] = ("agent",)
    activity: Activity = "hidden"
    questions: Questions = "decline"
    system: System = "append"
    options: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name, allowed in (("activity", Activity), ("questions", Questions), ("system", System)):
            if (value := getattr(self, name)) not in get_args(allowed):
                raise UsageError(f"Endpoints: `{name}` is one of {', '.join(get_args(allowed))}, not {value!r}")
        for name in ("models", "options"):
            names: object = getattr(self, name)
            if isinstance(names, str) or not all(isinstance(one, str) and one for one in getattr(self, name)):
                raise UsageError(f"Endpoints: `{name}` is a list of names, not {names!r}")
        if not self.models:
            raise UsageError("Endpoints: `models` is empty, so no request could name the agent")

    def takes(self, model: str) -> bool:
        """Whether a request with this model is for the agent."""
        return model in self.models or "*" in self.models

    @property
    def listed(self) -> list[str]:
        """The names that are listed."""
        return [name for name in self.models if name != "*"]
