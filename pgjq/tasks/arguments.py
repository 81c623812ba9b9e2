"""The arguments of a task: checked at the enqueue, converted to their types at the run.

An argument must bind to the function's signature, convert to its annotated type after the serde has written and read
it, and not belong to a parameter with `Depends`. A parameter without annotation takes what the serde takes.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

from pgjq.convert import shaped, structured
from pgjq.errors import ValidationError
from pgjq.tasks.depends import Dependency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pgjq.serde import Serde

# Values of these types are what JSON and MessagePack read back: no conversion.
EXACT: Final = frozenset((str, int, float, bool, type(None)))


class Parameter(NamedTuple):
    """A parameter: its name, its type, and that type if values need no conversion."""

    name: str
    kind: Any
    exact: Any


class Arguments:
    """The parameters of one function that are arguments of its jobs."""

    def __init__(self, function: Callable[..., Any], task: str, names: Mapping[str, Any]) -> None:
        self._function = function
        self._task = task
        self.signature = inspect.signature(function)
        self._hints: dict[str, Any] | None = None
        with suppress(NameError):  # Of a name that is defined later; `resolve` tries again at the first use.
            self._hints = get_type_hints(function, localns=dict(names), include_extras=True)
        self._ready = False
        self._positional: list[Parameter] = []
        self._named: dict[str, Parameter] = {}
        self._rest: Parameter | None = None
        self._others: Parameter | None = None
        self._least, self._most = 0, 0
        # The types of positional arguments that are a valid call and need no conversion; none before `resolve`.
        self.exact_calls: frozenset[tuple[type, ...]] = frozenset()
        self.returns: Any = Any

    def resolve(self) -> None:
        """Read the annotations; ValidationError if one of them names nothing that exists."""
        if self._ready:
            return
        if self._hints is None:
            try:
                self._hints = get_type_hints(self._function, include_extras=True)
            except NameError as error:
                raise ValidationError(
                    f"the annotations of task {self._task!r} cannot be read: {error}; import the name at run time, not"
                    " only for type checkers"
                ) from error
        self.returns = self._hints.get("return", Any)
        for parameter in self.signature.parameters.values():
            self._add(parameter, self._hints.get(parameter.name, Any))
        self._count()
        self._ready = True

    def _add(self, parameter: inspect.Parameter, kind: Any) -> None:
        entry = Parameter(parameter.name, kind, kind if isinstance(kind, type) and kind in EXACT else None)
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                self._rest = entry
            case inspect.Parameter.VAR_KEYWORD:
                self._others = entry
            case other:
                if other is not inspect.Parameter.KEYWORD_ONLY:
                    self._positional.append(entry)
                if other is not inspect.Parameter.POSITIONAL_ONLY:
                    self._named[parameter.name] = entry

    def _count(self) -> None:
        """Count the positional arguments that alone are valid, so that most calls need no binding."""
        parameters = list(self.signature.parameters.values())
        needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        only_named = any(p.kind is p.KEYWORD_ONLY for p in needed)
        self._least = sys.maxsize if only_named else len(needed)
        plain = [isinstance(p.default, Dependency) for p in parameters[: len(self._positional)]]
        self._most = plain.index(True) if True in plain else len(plain)
        exact = [p.exact for p in self._positional[: self._most]]
        counts = range(self._least, len(exact) + 1)
        self.exact_calls = frozenset(tuple(exact[:n]) for n in counts if None not in exact[:n])

    def write(self, args: Sequence[Any], kwargs: Mapping[str, Any], serde: Serde) -> tuple[list[Any], dict[str, Any]]:
        """Check arguments, and return them as data for the serde."""
        self.resolve()
        self._bind(args, kwargs)
        pairs = zip(self._in_order(), args, strict=False)
        positional = [self._write(p, value, serde) for p, value in pairs]
        named = {name: self._write(self._get(name), value, serde) for name, value in kwargs.items()} if kwargs else {}
        return positional, named

    def read(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Convert the data of a job to the annotated types; ValidationError if it does not fit."""
        if type(args) is not list or type(kwargs) is not dict:
            raise ValidationError(
                f'the payload of task {self._task!r} must have a list in "args", an object in "kwargs"'
            )
        if not kwargs and tuple(map(type, args)) in self.exact_calls:
            return args, kwargs
        self._bind(args, kwargs)
        pairs = zip(self._in_order(), args, strict=False)
        positional = [self._read(p, value) for p, value in pairs]
        named = {name: self._read(self._get(name), value) for name, value in kwargs.items()} if kwargs else {}
        return positional, named

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked arguments by parameter, with the defaults of the others, for templates."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return {name: value for name, value in bound.arguments.items() if not isinstance(value, Dependency)}

    def explain(self, args: Sequence[Any], kwargs: Mapping[str, Any], serde: Serde) -> None:
        """Raise a ValidationError that names the one argument that the serde cannot write."""
        for parameter, value in zip(self._in_order(), args, strict=False):
            self._converted(parameter.name, value, serde)
        for name, value in kwargs.items():
            self._converted(name, value, serde)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if not kwargs and self._least <= len(args) <= self._most:
            return
        try:
            given = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise ValidationError(f"wrong arguments of task {self._task!r}: {error}") from error
        for name in given:
            if isinstance(self.signature.parameters[name].default, Dependency):
                raise ValidationError(f"{name!r} is a dependency of task {self._task!r}: the worker provides it")

    def _in_order(self) -> Iterator[Parameter]:
        yield from self._positional
        while self._rest is not None:
            yield self._rest

    def _get(self, name: str) -> Parameter:
        parameter = self._named.get(name) or self._others
        if parameter is None:
            raise ValidationError(f"task {self._task!r} has no parameter {name!r}")
        return parameter._replace(name=name)

    def _write(self, parameter: Parameter, value: Any, serde: Serde) -> Any:
        if type(value) is parameter.exact or (parameter.kind is Any and type(value) in EXACT):
            return value
        data = value if parameter.kind is Any else self._structured(parameter.name, value)
        read = self._converted(parameter.name, data, serde)
        self._read(parameter, read)
        return data

    def _structured(self, name: str, value: Any) -> Any:
        try:
            return structured(value)
        except Exception as error:
            raise self._refusal(name, f"cannot be written as data: {error}") from error

    def _converted(self, name: str, value: Any, serde: Serde) -> Any:
        try:
            return serde.deserialize(serde.serialize(value))
        except Exception as error:
            raise self._refusal(name, f"cannot be serialised by {type(serde).__name__}: {error}") from error

    def _read(self, parameter: Parameter, value: Any) -> Any:
        if type(value) is parameter.exact:
            return value
        try:
            return shaped(parameter.kind, value, parameter.name)
        except ValidationError as error:
            raise ValidationError(f"wrong argument of task {self._task!r}: {error}") from error
        except Exception as error:
            raise self._refusal(parameter.name, f"cannot be converted to {parameter.kind}: {error}") from error

    def _refusal(self, name: str, why: str) -> ValidationError:
        return ValidationError(f"argument {name!r} of task {self._task!r} {why}")
