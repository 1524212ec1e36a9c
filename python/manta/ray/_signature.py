"""Arguments that do not fit are refused where the call is made, as Ray does, and not in the worker."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Optional

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Arity:
    """What a function may be called with. Most calls have positional arguments alone and are judged by their number."""

    def __init__(self, function: Callable[..., Any], is_method: bool) -> None:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        if is_method and parameters and parameters[0].kind in POSITIONAL:
            parameters = parameters[1:]
        # Of defaults only that they are there: the values may be anything, and this travels with handles.
        parameters = [p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else None) for p in parameters]
        self.signature = inspect.Signature(parameters)
        plain = [p for p in parameters if p.kind in POSITIONAL]
        self.least = sum(p.default is p.empty for p in plain)
        self.most = 10 ** 9 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(plain)
        if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
            self.least = 10 ** 9            # never by number alone

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs or not self.least <= len(args) <= self.most:
            self.signature.bind(*args, **kwargs)


def arity(function: Any, is_method: bool = False) -> Optional[Arity]:
    """None: nothing is known of the function, so that anything may be passed."""
    try:
        return Arity(function, is_method)
    except (TypeError, ValueError):
        return None


def checked(remote: Callable[..., Any], known: Optional[Arity]) -> Callable[..., Any]:
    """`remote`, which raises TypeError of arguments that do not fit."""
    if known is None:
        return remote
    least, most, bind = known.least, known.most, known.signature.bind

    def checked_remote(*args: Any, **kwargs: Any) -> Any:
        if kwargs or not least <= len(args) <= most:
            bind(*args, **kwargs)
        return remote(*args, **kwargs)
    return checked_remote
