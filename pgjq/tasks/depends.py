"""Dependencies: values that a worker provides for each run of a task.

A provider is a function, a coroutine function, a generator or async generator that yields once, a function made by
`contextlib.contextmanager` or `asynccontextmanager`, or a class whose instances are context managers. A provider may
have dependencies of its own. Within a run each provider is called once; after the run what it opened is closed, the
last one first, and gets the exception that the task raised.

A plain provider of a coroutine task runs on the event loop; a coroutine provider of a plain task, too, while the
task's thread waits.
"""

from __future__ import annotations

import functools
import inspect
import threading
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncContextDecorator,
    AsyncExitStack,
    ContextDecorator,
    asynccontextmanager,
    contextmanager,
)
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar, cast, overload

from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping

    Wait = Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]
    Provider = Callable[..., Any]

T = TypeVar("T")


class Dependency:
    """The mark that `Depends` returns, in place of the parameter's value."""

    def __init__(self, provider: Provider) -> None:
        if not callable(provider):
            raise ValidationError(f"Depends takes a function that provides the value, not {provider!r}")
        self.provider = provider

    def __repr__(self) -> str:
        return f"Depends({_name(self.provider)})"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self!r} has no {name!r}: a worker provides the value; pass one when you call the function yourself"
        )


@overload
def Depends(provider: Callable[..., AbstractContextManager[T]]) -> T: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def Depends(provider: Callable[..., AbstractAsyncContextManager[T]]) -> T: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def Depends(provider: Callable[..., Iterator[T]]) -> T: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def Depends(provider: Callable[..., AsyncIterator[T]]) -> T: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def Depends(provider: Callable[..., Coroutine[Any, Any, T]]) -> T: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def Depends(provider: Callable[..., T]) -> T: ...
def Depends(provider: Any) -> Any:  # noqa: N802  (the contract's name)
    """Declare, as a parameter's default, a value that the worker provides for each run.

    The parameter is no argument of the job: passing one is a ValidationError.
    """
    return Dependency(provider)


class using_dependencies:  # noqa: N801  (used as a function, in `with`)
    """Replace providers in this process for a `with` block, for tests: `{provider: fake}`.

    A fake is a provider of any kind, or a value. Blocks nest, and count for the workers of the process.
    """

    _lock: Final = threading.Lock()
    _active: Final[list[Mapping[Any, Any]]] = []

    def __init__(self, fakes: Mapping[Any, Any]) -> None:
        self._fakes = dict(fakes)

    def __enter__(self) -> Self:
        with self._lock:
            self._active.append(self._fakes)
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            place = next(n for n, fakes in enumerate(self._active) if fakes is self._fakes)
            del self._active[place]

    @classmethod
    def replacement(cls, provider: Provider) -> Provider:
        """Return what to call instead of a provider now: itself, or the innermost fake."""
        for fakes in reversed(cls._active):
            if provider in fakes:
                fake = fakes[provider]
                return fake if callable(fake) else functools.partial(_same, fake)
        return provider


@functools.lru_cache(maxsize=4096)
def dependencies_of(function: Callable[..., Any]) -> Mapping[str, Dependency]:
    """Return the parameters of a function that have `Depends` as their default."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}  # Some built-in classes and functions have no signature.
    return {name: p.default for name, p in parameters.items() if isinstance(p.default, Dependency)}


def check_dependencies(function: Callable[..., Any], path: tuple[Provider, ...] = ()) -> None:
    """Refuse circular dependencies, and dependencies as positional-only parameters."""
    for name, dependency in dependencies_of(function).items():
        if inspect.signature(function).parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ValidationError(f"parameter {name!r} of {_name(function)} cannot be positional-only and have Depends")
        provider = dependency.provider
        if provider in path:
            names = " → ".join(_name(each) for each in (*path, provider))
            raise ValidationError(f"dependencies must not depend on themselves: {names}")
        check_dependencies(provider, (*path, provider))


class Resolution:
    """The dependencies of one run; `wait` awaits a coroutine, or blocks the thread for it."""

    def __init__(self, wait: Wait) -> None:
        self._wait = wait
        self._values: dict[Provider, Any] = {}
        self._stack = AsyncExitStack()

    async def call(self, call: Callable[..., Coroutine[Any, Any, Any]], function: Provider) -> Any:
        """Call with the dependencies of a function as keyword arguments, and then close them."""
        try:
            result = await call(**await self._arguments(function))
        except BaseException as error:
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise  # Also if a provider swallowed it: the task has failed.
        await self._stack.aclose()
        return result

    async def _arguments(self, function: Provider) -> dict[str, Any]:
        return {name: await self._value(each.provider) for name, each in dependencies_of(function).items()}

    async def _value(self, provider: Provider) -> Any:
        if provider not in self._values:
            chosen = using_dependencies.replacement(provider)
            self._values[provider] = await self._open(chosen, await self._arguments(chosen))
        return self._values[provider]

    async def _open(self, provider: Provider, arguments: Mapping[str, Any]) -> Any:
        if inspect.isgeneratorfunction(provider):
            provider = contextmanager(provider)
        elif inspect.isasyncgenfunction(provider):
            provider = asynccontextmanager(provider)
        made: Any = provider(**arguments)
        if inspect.iscoroutine(made):
            return await self._wait(made)
        # Other functions may return an object that is a context manager by chance, such as a shared connection.
        if _is_manager(provider, made):
            return self._stack.enter_context(made)
        if _is_async_manager(provider, made):
            return await self._stack.enter_async_context(_Waiting(made, self._wait))
        return made


def _is_manager(provider: Any, made: Any) -> bool:
    return isinstance(made, ContextDecorator) or (
        isinstance(provider, type) and isinstance(made, AbstractContextManager)
    )


def _is_async_manager(provider: Any, made: Any) -> bool:
    return isinstance(made, AsyncContextDecorator) or (
        isinstance(provider, type) and isinstance(made, AbstractAsyncContextManager)
    )


class _Waiting(AbstractAsyncContextManager[Any]):
    """Enters and leaves an async context manager with `wait`."""

    def __init__(self, manager: AbstractAsyncContextManager[Any], wait: Wait) -> None:
        self._manager = manager
        self._wait = wait

    async def __aenter__(self) -> Any:
        return await self._wait(_awaited(self._manager.__aenter__()))

    async def __aexit__(self, *exc: object) -> Any:
        return await self._wait(_awaited(self._manager.__aexit__(*cast("tuple[Any, Any, Any]", exc))))


def _same(value: Any) -> Any:
    return value


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", repr(function))
