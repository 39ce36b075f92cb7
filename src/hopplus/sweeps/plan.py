"""What a sweep consists of: a file of TOML becomes cells, each one training and how it is judged.

[common]                                     # settings of every cell, as the options of `hopplus train`
steps = 500_000
seeds = "0-4"

[grid]                                       # every combination is a cell
recipe = ["ppo", "hopplus"]
game = ["msh-4x4-4h1s", "msg-4x4"]

[[cells]]                                    # and these, one by one
recipe = "hop"
game = "msh-4x4-4h1s"

[[judge]]                                    # how each is judged after its training: the columns of the table
name = "with NH"
command = "evaluate"
cast = "self,nh,nh,nh"
"""

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hopplus.errors import InputError
from hopplus.notation import file_name
from hopplus.specs import nearest
from hopplus.training.trainer import Training, parse_seeds

KEYS = ("title", "common", "grid", "cells", "judge", "values", "resources", "reference", "seeds_together")
RESOURCES = ("cpus", "gpus")
JUDGES = ("evaluate", "adapt")
"""Commands that judge a run."""
OWN = ("out", "resume", "json", "report", "devices", "coordinator", "processes", "process")
"""Options of `hopplus train` that are the sweep's to decide."""
PLAIN = ("recipe", "game", "cast")
"""Axes whose values speak for themselves."""
LONGEST_NAME = 80

Settings = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One training: a run directory."""

    name: str
    labels: Mapping[str, str]
    """By axis of the grid, which of its values this is."""
    settings: Mapping[str, Any]
    """Options of `hopplus train` by name, and the `recipe`."""
    part_of: str | None = None
    """The cell of which it has some of the seeds."""

    def is_called(self, word: str) -> bool:
        """Whether a word is its name, that of the cell that it is a part of, or a label."""
        return word in (self.name, self.part_of, *self.labels.values())

    @property
    def seeds(self) -> tuple[int, ...]:
        return parse_seeds(str(self.settings.get("seeds", Training.seeds)))

    @property
    def steps(self) -> int:
        """Environment steps of each seed."""
        return int(self.settings.get("steps", Training.steps))

    def words(self) -> list[str]:
        """The command that trains it, after `hopplus`."""
        rest = {key: value for key, value in self.settings.items() if key != "recipe"}
        return ["train", self.settings["recipe"], *options(rest)]


@dataclass(frozen=True)
class Judge:
    """How runs are judged."""

    name: str
    command: str
    settings: Mapping[str, Any]
    only: tuple[str, ...] = ()
    """Names or labels of the cells that it judges; none are all."""

    def judges(self, cell: Cell) -> bool:
        return not self.only or any(map(cell.is_called, self.only))

    def words(self, run: Path) -> list[str]:
        """The command that judges a run, after `hopplus`."""
        return [self.command, str(run), *options(self.settings)]


@dataclass(frozen=True)
class Plan:
    """A whole sweep."""

    title: str
    cells: tuple[Cell, ...]
    judges: tuple[Judge, ...] = ()
    cpus: int = 1
    """Cores that a cell has to itself."""
    gpus: float = 0
    reference: str | None = None
    """The label with which all others are compared in the tables."""
    seeds_together: bool = False
    """Whether a cell is one run, however many workers there are."""
    parts: int = 1
    """In how many runs at most the seeds of a cell are."""

    def cell(self, name: str) -> Cell:
        """The cell of a name."""
        return next(cell for cell in self.cells if cell.name == name)

    def described(self) -> dict[str, Any]:
        """As JSON has it: `from_description` gives the same again."""
        return asdict(self)


def narrowed(plan: Plan, words: Sequence[str]) -> Plan:
    """The plan with those cells only that one of the words calls, or all if there is none; InputError where a word
    calls no cell."""
    for word in words:
        if not any(cell.is_called(word) for cell in plan.cells):
            known = {name for cell in plan.cells for name in (cell.name, *cell.labels.values())}
            raise InputError(f"no cell of {plan.title} is called {word!r}{nearest(word, known)}")
    return replace(plan, cells=tuple(cell for cell in plan.cells if not words or any(map(cell.is_called, words))))


def from_description(described: Mapping[str, Any]) -> Plan:
    """What `described` gave."""
    parts = {
        "cells": tuple(Cell(**cell) for cell in described["cells"]),
        "judges": tuple(Judge(**{**judge, "only": tuple(judge["only"])}) for judge in described["judges"]),
    }
    return Plan(**{**described, **parts})


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings as words of a command: `--tastes`, `--no-tastes`, `--hidden 128 128`, `--steps 500000`."""
    words: list[str] = []
    for key, value in settings.items():
        option = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif isinstance(value, list | tuple):
            words += [f"--{option}", *map(str, value)]
        else:
            words += [f"--{option}", str(value)]
    return words


def read_plan(path: Path) -> Plan:
    """The sweep that a file describes; InputError says what is wrong with it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no sweep file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    try:
        return make_plan(found, path.stem, path.parent)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def make_plan(found: Mapping[str, Any], title: str, directory: Path = Path()) -> Plan:
    """The sweep that a mapping describes; files that it names are beside it, in a directory."""
    _check_keys("a sweep", found, KEYS)
    common = _table(found, "common")
    for key in [*common, *itertools.chain.from_iterable(_tables(found, "cells"))]:
        if key in OWN:
            raise InputError(f"{key!r} cannot be set: the sweep decides it")
    cells = [*_grid_cells(found, common), *_single_cells(found, common)]
    if not cells:
        raise InputError("the sweep has no cells: give it [grid] with a list of recipes, or [[cells]]")
    cells = [_placed(cell, directory) for cell in cells]
    _check_names([cell.name for cell in cells], "cells")
    plugin = {"plugin": str(directory.resolve() / common["plugin"])} if "plugin" in common else {}
    judges = tuple(_judge(number, one, plugin) for number, one in enumerate(_tables(found, "judge")))
    for judge in judges:
        for word in judge.only:
            if not any(cell.is_called(word) for cell in cells):
                raise InputError(f"the judge {judge.name!r} is for {word!r}, and no cell is called so")
    for cell in cells:
        _check_names([judge.name for judge in judges if judge.judges(cell)], f"judges of the cell {cell.name}")
    resources = _table(found, "resources")
    _check_keys("[resources]", resources, RESOURCES)
    for key, value in resources.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < (key == "cpus"):
            raise InputError(f"resources: {key} must be a number, at least {int(key == 'cpus')}, not {value!r}")
    reference = found.get("reference")
    if reference is not None and not any(reference in cell.labels.values() for cell in cells):
        raise InputError(f"reference: no cell is called {reference!r}")
    if not isinstance(found.get("title", ""), str):
        raise InputError(f"title must be a text, not {found['title']!r}")
    together = found.get("seeds_together", False)
    if not isinstance(together, bool):
        raise InputError(f"seeds_together must be true or false, not {together!r}")
    return Plan(
        found.get("title", title),
        tuple(cells),
        judges,
        int(resources.get("cpus", 1)),
        resources.get("gpus", 0),
        reference,
        together,
    )


def split_seeds(plan: Plan, parts: int) -> Plan:
    """The plan with the seeds of each cell in so many runs, or in one where the plan wants them together.

    The seeds of a run are computed together, which compiles them once and is no slower; so they are taken apart only
    where there would be nothing to do for some of the workers.
    """
    parts = 1 if plan.seeds_together else parts
    cells = []
    for cell in plan.cells:
        seeds = cell.seeds
        size = -(-len(seeds) // min(parts, len(seeds)))
        groups = [seeds[start : start + size] for start in range(0, len(seeds), size)]
        if len(groups) == 1:
            cells.append(cell)
            continue
        for group in groups:
            said = ",".join(map(str, group))
            name = f"{cell.name}-seeds-{said.replace(',', '-')}"
            settings = {**cell.settings, "seeds": said}
            cells.append(replace(cell, name=name, settings=settings, part_of=cell.name))
    return replace(plan, cells=tuple(cells), parts=parts)


def _grid_cells(found: Mapping[str, Any], common: Settings) -> Iterator[Cell]:
    """All combinations of the values of a grid's axes, grid by grid."""
    named = _table(found, "values")
    for grid in _tables(found, "grid"):
        axes: list[list[tuple[str, str, Settings]]] = []
        for axis, values in grid.items():
            listed = values if isinstance(values, list) else [values]
            if not listed:
                raise InputError(f"the grid is empty: {axis} has no values")
            axes.append([(axis, *_value(axis, value, named.get(axis, {}))) for value in listed])
        for chosen in itertools.product(*axes):
            settings = dict(common)
            for _, _, more in chosen:
                settings |= more
            several = {axis: label for axis, label, _ in chosen}
            yield _cell(_joined(several, grid), several, settings)


def _value(axis: str, value: Any, named: Mapping[str, Any]) -> tuple[str, Settings]:
    """A value of an axis: how it is called, and what it sets."""
    if isinstance(value, str) and named:
        if value not in named:
            raise InputError(f"there is no [values.{axis}.{value}]{nearest(value, named)}")
        value = {"name": value, **named[value]}
    if isinstance(value, dict):
        more = {key: one for key, one in value.items() if key != "name"}
        return str(value.get("name", " ".join(map(str, more.values())))), more
    written = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return written, {axis: value}


def _joined(labels: Mapping[str, str], grid: Mapping[str, Any]) -> str:
    """A cell's name: what tells it from the others of its grid."""
    parts = []
    for axis, label in labels.items():
        value = grid[axis]
        if not isinstance(value, list):
            continue
        speaks = axis in PLAIN or not all(isinstance(one, int | float | list) for one in value)
        parts.append(label if speaks else f"{axis}-{label}")
    return "-".join(parts) or "-".join(labels.values())


def _single_cells(found: Mapping[str, Any], common: Settings) -> Iterator[Cell]:
    for given in _tables(found, "cells"):
        settings = {**common, **{key: value for key, value in given.items() if key != "name"}}
        labels = {key: str(value) for key, value in {"game": Training.game, **settings}.items() if key in PLAIN}
        name = str(given.get("name", "-".join(str(given[key]) for key in PLAIN if key in given) or "cell"))
        yield _cell(name, {**labels, "name": name} if "name" in given else labels, settings)


def _cell(name: str, labels: Mapping[str, str], settings: Settings) -> Cell:
    if not isinstance(settings.get("recipe"), str):
        raise InputError(f"the cell {name!r} has no recipe")
    for key, value in settings.items():
        parts = value if isinstance(value, list) else [value]
        if key in OWN:
            raise InputError(f"{key!r} cannot be set: the sweep decides it")
        if not all(isinstance(part, str | int | float | bool) for part in parts):
            raise InputError(f"{key} of the cell {name!r} is not a number, a text, a truth value or a list of them")
    return Cell(file_name(name, LONGEST_NAME), dict(labels), settings)


def _placed(cell: Cell, directory: Path) -> Cell:
    """The cell with its plugin's whole path."""
    if "plugin" not in cell.settings:
        return cell
    return replace(cell, settings={**cell.settings, "plugin": str(directory.resolve() / cell.settings["plugin"])})


def _judge(number: int, given: Mapping[str, Any], plugin: Settings) -> Judge:
    settings = {key: value for key, value in given.items() if key not in ("name", "command", "only")}
    command = given.get("command", "evaluate")
    if command not in JUDGES:
        raise InputError(f"a judge's command is one of {', '.join(JUDGES)}, not {command!r}")
    for key in settings:
        if key in ("run", "runs", "json"):
            raise InputError(f"{key!r} cannot be set: the sweep decides it")
    only = given.get("only", [])
    if not isinstance(only, list):
        raise InputError(f"a judge's `only` is a list of cells, not {only!r}")
    name = str(given.get("name", f"{command} {number + 1}"))
    return Judge(name, command, {**plugin, **settings}, tuple(map(str, only)))


def _check_keys(what: str, found: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in found:
        if key not in known:
            raise InputError(f"{what} has no {key!r}{nearest(key, known)}")


def _check_names(names: Sequence[str], what: str) -> None:
    seen = set()
    for name in names:
        if name.casefold() in seen:
            raise InputError(f"two {what} are called {name!r}: give them names of their own")
        seen.add(name.casefold())


def _table(found: Mapping[str, Any], key: str) -> Settings:
    value = found.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{key} must be a table, [{key}], not {value!r}")
    return value


def _tables(found: Mapping[str, Any], key: str) -> list[Settings]:
    """One table, or several."""
    value = found.get(key, [])
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in several):
        raise InputError(f"{key} must be a table, [[{key}]], not {value!r}")
    return several
