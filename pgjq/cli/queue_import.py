"""Import the queues that `MODULE:QUEUE` names.

`shop.tasks:mail` is the object `mail` in the module `shop.tasks`, `shop.tasks:app.mail` an attribute of its attribute,
and `shop.tasks` alone is every queue with tasks or a handler in the module. The object is a `Queue`, an `AsyncQueue`,
or a list of these. The current directory comes first on the import path.

A framework that must be set up before its modules can be imported is set up by a function that `--setup` names, as
`django:setup`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pgjq.cli.command_group import CommandLineError, Refusal
from pgjq.errors import PgjqError
from pgjq.queue import QueueBase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from pgjq.queue import AsyncQueue, Queue

    AnyQueue = Queue | AsyncQueue

# Prefixes of file names of the import system and of pgjq.
_NOT_THEIRS: Final = ("<frozen", f"{Path(__file__).parents[1]}{os.sep}")


# Errors of a framework that has not been set up: the module and name of the class, and what to do.
_SETUPS: Final = {
    ("django", "ImproperlyConfigured"): "set DJANGO_SETTINGS_MODULE, and pass --setup django:setup",
    ("django", "AppRegistryNotReady"): "pass --setup django:setup",
    ("builtins", "RuntimeError"): "make the application in the module, or pass --setup MODULE:FUNCTION",
}


def find_queues(targets: Sequence[str], *, setup: str | None = None, names: Sequence[str] = ()) -> list[AnyQueue]:
    """Import the modules and return their queues, each once; with names, only those queues."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if setup is not None:
        _set_up(setup)
    found = {id(queue): queue for target in targets for queue in _queues(target)}
    queues: list[AnyQueue] = list(found.values())
    return [_named(queues, name) for name in dict.fromkeys(names)] if names else queues


def _named(queues: Sequence[AnyQueue], name: str) -> AnyQueue:
    for queue in queues:
        if queue.name == name:
            return queue
    raise CommandLineError(
        f"there is no queue {name!r} here; the queues are {', '.join(queue.name for queue in queues)}"
    )


def _set_up(target: str) -> None:
    name, _, path = target.partition(":")
    if not name or not path:
        raise CommandLineError(f"--setup {target!r} does not say MODULE:FUNCTION, as in django:setup")
    module = _import(name)
    try:
        function: Any = attrgetter(path)(module)
    except AttributeError:
        raise CommandLineError(f"there is no {path!r} in module {name!r}") from None
    if not callable(function):
        raise CommandLineError(f"--setup {target} is a {type(function).__name__}; it must be a function")
    try:
        function()
    except PgjqError:
        raise
    except Exception as error:
        raise _broken(target, error, "calling") from error


def _queues(target: str) -> list[Any]:
    name, colon, path = target.partition(":")
    if not name or (colon and not path):
        raise CommandLineError(f"{target!r} does not say MODULE:QUEUE, as in shop.tasks:mail")
    module = _import(name)
    if not colon:
        return _all_of(module)
    try:
        thing: Any = attrgetter(path)(module)
    except AttributeError:
        raise CommandLineError(f"there is no {path!r} in module {name!r}{_offer(module)}") from None
    return _as_queues(target, thing)


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"; write {name.removesuffix('.py')}" if name.endswith(".py") else ""
            raise CommandLineError(f"there is no module {name!r}, here in {Path.cwd()} or installed{hint}") from error
        raise _broken(name, error) from error
    except PgjqError:
        raise
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception, doing: str = "importing") -> Refusal:
    """Name the line where an import failed: the last outside of pgjq and the import system."""
    where, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        where = where if file.startswith(_NOT_THEIRS) else f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    said = f"{type(error).__name__}: {error}"
    return Refusal(f"{doing} {name} failed: {said}{where}; {_advice(error)}pgjq --debug … shows all of it")


def _advice(error: Exception) -> str:
    """Return what to do about a framework that has not been set up."""
    kind = type(error)
    if kind.__name__ == "RuntimeError" and "application context" not in str(error):
        return ""
    advice = _SETUPS.get((kind.__module__.partition(".")[0], kind.__name__))
    return "" if advice is None else f"{advice}; "


def _all_of(module: ModuleType) -> list[Any]:
    queues: list[QueueBase] = [thing for thing in vars(module).values() if isinstance(thing, QueueBase)]
    found = [queue for queue in queues if queue.consumes]
    if not found:
        raise CommandLineError(f"there is no queue with tasks or a handler in module {module.__name__!r}")
    return found


def _as_queues(target: str, thing: Any) -> list[Any]:
    things = list(cast("Iterable[Any]", thing)) if isinstance(thing, Iterable) else [thing]
    wrong = [item for item in things if not isinstance(item, QueueBase)]
    if wrong or not things:
        is_what = f"a {type(wrong[0]).__name__}" if wrong else "empty"
        raise CommandLineError(f"{target} is {is_what}; it must be a Queue, an AsyncQueue, or a list of them")
    return things


def _offer(module: ModuleType) -> str:
    names = [name for name, thing in vars(module).items() if isinstance(thing, QueueBase)]
    return f"; its queues are {', '.join(names)}" if names else ", and no queue at all"
