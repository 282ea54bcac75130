"""The registry of actions.

`action` registers a function under its names in scripts and declares its arguments. `perform` rejects unknown and
missing arguments, replaces variables and calls `f(script, arguments, body)`. An action that fails raises CommandFailed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testdrive.parser import Action
from testdrive.report import CommandFailed
from testdrive.script import Script

Arguments = dict[str, str]
Function = Callable[[Script, Arguments, list[str]], None]


@dataclass(frozen=True, slots=True)
class Declared:
    """A registered action. `optional` None: any further argument is accepted."""

    function: Function
    required: frozenset[str]
    optional: frozenset[str] | None
    has_body: bool


ACTIONS: dict[str, Declared] = {}


def action(
    *names: str, required: str = "", optional: str | None = "", has_body: bool = False
) -> Callable[[Function], Function]:
    """Registers a function under `names`. `required` and `optional` are argument names separated by spaces."""

    def register(function: Function) -> Function:
        others = None if optional is None else frozenset(optional.split())
        for name in names:
            ACTIONS[name] = Declared(function, frozenset(required.split()), others, has_body)
        return function

    return register


def perform(script: Script, command: Action) -> None:
    declared = ACTIONS.get(command.name)
    if declared is None:
        raise CommandFailed(f"there is no action {command.name}")
    given = command.arguments.keys()
    if missing := declared.required - given:
        raise CommandFailed(f"{command.name} needs the argument {', '.join(sorted(missing))}")
    if declared.optional is not None and (unknown := given - declared.required - declared.optional):
        raise CommandFailed(f"{command.name} has no argument {', '.join(sorted(unknown))}")
    if command.body and not declared.has_body:
        raise CommandFailed(f"{command.name} takes no lines below it")
    arguments = {name: script.substitute(value) for name, value in command.arguments.items()}
    declared.function(script, arguments, [script.substitute(line) for line in command.body])


def positive(name: str, text: str) -> int:
    """Returns the number of an argument. CommandFailed unless it is a number from 1."""
    if not text.isdecimal() or int(text) == 0:
        raise CommandFailed(f"{name} is a number from 1, not {text!r}")
    return int(text)


def boolean(name: str, text: str) -> bool:
    """Returns the value of an argument; one without a value is true. CommandFailed unless it is true or false."""
    if text not in ("", "true", "false"):
        raise CommandFailed(f"{name} is true or false, not {text!r}")
    return text != "false"
