"""Commands whose options are the parameters of a public function: declared once, there.

A command names its function and says what its options mean; which there are, their order, types and
defaults are the function's own. What several commands share is in ``options``. The function is
imported when its command is used, so that no command waits for the libraries of another.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, Union, get_args, get_origin

from typer import Option
from typer.core import DEFAULT_MARKUP_MODE, TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo, ParameterInfo

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call, check_files, pairs, show, write_table
from shiftbed.errors import InputError
from shiftbed.places import shown_place

_SEVERAL = {Sequence, Iterable, Collection, Mapping, list}
_NUMBERS = (bool, int, float)
Run = Callable[[Callable[..., Any], dict[str, Any]], None]


class Default(NamedTuple):
    """An option with another default than the function's, or one that the function has not."""

    declared: Any
    value: Any = None


@dataclass(frozen=True)
class Read:
    """An option that the function takes in another form: ``read(value, option)`` gives it."""

    declared: Any
    read: Callable[[Any, str], Any]


def named(form: str, help: str) -> Read:
    """Texts such as NAME=VALUE, as a dictionary."""
    return Read(help, lambda texts, option: pairs(texts, option, form))


class Command:
    """A command that calls a function and shows its result.

    ``options`` are declared by a help text, typer's ``Option`` or ``Argument``, one of them
    ``Annotated`` with another type than the function's, ``Default`` or ``Read``; those that the
    function does not have come last. None leaves a parameter out.
    """

    adds: tuple[str, ...] = ("json",)
    """Options that every such command has."""

    def __init__(
        self, doc: str, run: Run | None = None, function: str = "", /, **options: Any
    ) -> None:
        self.doc, self.function, self._options = doc, function, options
        self.run = run or self.usual

    def usual(self, function: Callable[..., Any], given: dict[str, Any]) -> None:
        """What is done with the function and what was given."""
        show(call(function, given), given["json"])

    def built(self, name: str) -> TyperCommand:
        """The command with its options; imports the function."""
        function = getattr(sb, self.function or name)
        takes = inspect.signature(function).parameters
        own = dict.fromkeys(takes) | dict.fromkeys(self._options) | dict.fromkeys(self.adds)
        known = opt.SHARED | self._options
        reads: dict[str, Callable[[Any, str], Any]] = {}
        parameters = []
        for key in own:
            declared = known[key]
            if declared is None:
                continue
            if isinstance(declared, Read):
                reads[key], declared = declared.read, declared.declared
            parameters.append(_parameter(key, takes.get(key), declared))

        def command(**given: Any) -> None:
            for key, read in reads.items():
                if given[key] is not None:
                    given[key] = read(given[key], f"--{key.replace('_', '-')}")
            self.run(function, given)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        info = CommandInfo(name=name, callback=command, help=self.doc)
        made = get_command_from_info(
            info, pretty_exceptions_short=True, rich_markup_mode=DEFAULT_MARKUP_MODE
        )
        assert isinstance(made, TyperCommand)
        return made


class Study(Command):
    """A command whose result has a chart: its table and chart may be written to files."""

    adds = ("output", "figure", "json")

    def usual(self, function: Callable[..., Any], given: dict[str, Any]) -> None:
        study(function, given)


class Silent(Command):
    """A command that prints no table."""

    adds = ()


def study(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    chart: Mapping[str, Any] | None = None,
) -> None:
    """Call a function; write its table and its ``chart`` to ``output`` and ``figure``; show it."""
    output, figure, json = given["output"], given["figure"], given["json"]
    check_files(output, figure)
    result = call(function, given, output=None, figure=None)
    if figure is not None:
        from shiftbed.page import save
        from shiftbed.results.charts import renamed

        save(renamed(result.chart(**chart or {}), result.called), figure)
    if output is not None:
        write_table(result.frame, output)
    show(result, json)
    for path in () if json else filter(None, (output, figure)):
        print(f"wrote {shown_place(path)}")


def _parameter(name: str, taken: inspect.Parameter | None, declared: Any) -> inspect.Parameter:
    """A parameter as typer reads it."""
    default = None if taken is None else taken.default
    if isinstance(declared, Default):
        declared, default = declared
        default = inspect.Parameter.empty if default is ... else default
    kind, info = None, declared
    if get_origin(declared) is Annotated:
        kind, info = get_args(declared)
    if kind is None:
        kind = _kind(str if taken is None else taken.annotation)
    if isinstance(info, str):
        flag = [f"--{name.replace('_', '-')}"] if kind is bool and not default else []
        info = Option(*flag, help=info)
    assert isinstance(info, ParameterInfo)
    several = get_origin(kind) is list
    if default is not inspect.Parameter.empty:
        if kind is bool and default is None and taken is None:
            default = False
        elif several or not isinstance(default, str | int | float | Path):
            default, kind = None, kind | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _kind(annotation: Any) -> Any:
    """What the command line reads: texts for anything that is several, numbers, else a text."""
    union = get_origin(annotation) in (Union, UnionType)
    members = set(get_args(annotation) if union else (annotation,)) - {NoneType}
    if {get_origin(one) for one in members} & _SEVERAL:
        return list[str]
    if members == {str, Path}:
        return Path
    return next((one for one in _NUMBERS if one in members and str not in members), str)


class Commands(TyperGroup):
    """Lists commands by their first line, and builds the one that is used."""

    lazy: ClassVar[dict[str, Command]] = {}

    def full(self, name: str) -> Any:
        """A command with its options."""
        return self.lazy[name].built(name) if name in self.lazy else self.commands[name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        for before, word in zip(["", *args], args, strict=False):
            option = before if before.startswith("-") else "an argument"
            if word == "" or (word.startswith("--") and word.find("=") == len(word) - 1):
                raise InputError(f"{word[:-1] or option} is empty: give it a value or leave it out")
        name, found, left = super().resolve_command(ctx, args)
        return name, self.full(name) if name in self.lazy else found, left
