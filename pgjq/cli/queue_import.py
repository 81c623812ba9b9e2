"""Import the queues that `MODULE:QUEUE` names.

`shop.tasks:mail` is the object `mail` in the module `shop.tasks`, `shop.tasks:app.mail` an attribute of its attribute,
and `shop.tasks` alone is every queue with tasks or a handler in the module. The object is a `Queue`, an `AsyncQueue`,
or a list of these. The current directory comes first on the import path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pgjq.cli.root import Misuse, Refusal
from pgjq.errors import PgjqError
from pgjq.queue import QueueBase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from pgjq.queue import AsyncQueue, Queue

# Prefixes of file names of the import system and of pgjq.
_NOT_THEIRS: Final = ("<frozen", f"{Path(__file__).parents[1]}{os.sep}")


def find_queues(targets: Sequence[str]) -> list[Queue | AsyncQueue]:
    """Import the modules and return their queues, each once."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found = {id(queue): queue for target in targets for queue in _queues(target)}
    return list(found.values())


def _queues(target: str) -> list[Any]:
    name, colon, path = target.partition(":")
    if not name or (colon and not path):
        raise Misuse(f"{target!r} does not say MODULE:QUEUE, as in shop.tasks:mail")
    module = _import(name)
    if not colon:
        return _all_of(module)
    try:
        thing: Any = attrgetter(path)(module)
    except AttributeError:
        raise Misuse(f"there is no {path!r} in module {name!r}{_offer(module)}") from None
    return _as_queues(target, thing)


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"; write {name.removesuffix('.py')}" if name.endswith(".py") else ""
            raise Misuse(f"there is no module {name!r}, here in {Path.cwd()} or installed{hint}") from error
        raise _broken(name, error) from error
    except PgjqError:
        raise
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> Refusal:
    """Name the line where an import failed: the last outside of pgjq and the import system."""
    where, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        where = where if file.startswith(_NOT_THEIRS) else f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    said = f"{type(error).__name__}: {error}"
    return Refusal(f"importing {name} failed: {said}{where}; pgjq --debug worker … shows all of it")


def _all_of(module: ModuleType) -> list[Any]:
    queues: list[QueueBase] = [thing for thing in vars(module).values() if isinstance(thing, QueueBase)]
    found = [queue for queue in queues if queue.consumes]
    if not found:
        raise Misuse(f"there is no queue with tasks or a handler in module {module.__name__!r}")
    return found


def _as_queues(target: str, thing: Any) -> list[Any]:
    things = list(cast("Iterable[Any]", thing)) if isinstance(thing, Iterable) else [thing]
    wrong = [item for item in things if not isinstance(item, QueueBase)]
    if wrong or not things:
        is_what = f"a {type(wrong[0]).__name__}" if wrong else "empty"
        raise Misuse(f"{target} is {is_what}; it must be a Queue, an AsyncQueue, or a list of them")
    return things


def _offer(module: ModuleType) -> str:
    names = [name for name, thing in vars(module).items() if isinstance(thing, QueueBase)]
    return f"; its queues are {', '.join(names)}" if names else ", and no queue at all"
