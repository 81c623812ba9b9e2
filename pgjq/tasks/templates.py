"""Ids and keys that are made of a task's arguments: by a format string or by a function."""

from __future__ import annotations

import inspect
from string import Formatter
from typing import TYPE_CHECKING, Any

from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pgjq.tasks.arguments import Arguments


class Template:
    """Makes an id or a key: `"order-{order}"`, or a function of the arguments.

    A function whose parameters are all parameters of the task gets those by name; any other gets the arguments as they
    were passed.
    """

    def __init__(self, option: str, source: Any, arguments: Arguments) -> None:
        self._option = option
        self._arguments = arguments
        self._constant: str | None = None
        if isinstance(source, str):
            self._make = self._formatter(source)
        elif callable(source):
            self._make = self._caller(source)
        else:
            raise ValidationError(f"{option} must be a str or a function of the task's arguments, not {source!r}")

    def fill(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return the id or key for some arguments, which were checked before."""
        if self._constant is not None:
            return self._constant
        try:
            return self._make(args, kwargs)
        except Exception as error:
            raise ValidationError(f"{self._option} cannot be made from the arguments: {error!r}") from error

    def _formatter(self, text: str) -> Callable[[Sequence[Any], Mapping[str, Any]], str]:
        for name in self._fields(text):
            if name not in self._arguments.signature.parameters:
                known = ", ".join(self._arguments.signature.parameters) or "none"
                raise ValidationError(f"{self._option}={text!r} names {name!r}; the parameters are {known}")
        if not self._fields(text):
            self._constant = text.format()
        return lambda args, kwargs: text.format(**self._arguments.bound(args, kwargs))

    def _fields(self, text: str) -> list[str]:
        """Return the parameters in a format string: `{order.id}` and `{order[id]}` name `order`."""
        try:
            fields = [field for _, field, _, _ in Formatter().parse(text) if field is not None]
        except ValueError as error:
            raise ValidationError(f"{self._option}={text!r} is not a format string: {error}") from error
        return [field.replace("[", ".").partition(".")[0] for field in fields]

    def _caller(self, function: Callable[..., Any]) -> Callable[[Sequence[Any], Mapping[str, Any]], Any]:
        try:
            wanted = set(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            wanted = {""}
        if not wanted <= set(self._arguments.signature.parameters):
            return lambda args, kwargs: function(*args, **kwargs)

        def call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            bound = self._arguments.bound(args, kwargs)
            return function(**{name: bound[name] for name in wanted})

        return call
