"""Sweep plans: a TOML file becomes cells, one training each, and judges that evaluate them.

[common]                                     # settings of every cell, named as the options of `hopplus train`
steps = 500_000
seeds = "0-4"

[grid]                                       # every combination is a cell
algorithm = ["ppo", "hopplus"]
game = ["msh-4x4-4h1s", "msg-4x4"]

[[cells]]                                    # further cells, one by one
algorithm = "hop"
game = "msh-4x4-4h1s"

[[judge]]                                    # evaluations after training: the columns of the table
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

from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.formatting import file_name
from hopplus.core.specs import nearest
from hopplus.training.experiment import parse_seeds

KEYS = ("title", "common", "grid", "cells", "judge", "values", "resources", "reference", "seeds_together")
RESOURCES = ("cpus", "gpus")
JUDGES = ("evaluate", "adapt")
"""Commands that evaluate a run."""
RESERVED = ("out", "resume", "json", "report", "devices", "coordinator", "processes", "process")
"""Options of `hopplus train` that the sweep sets itself."""
SELF_EXPLANATORY = ("algorithm", "game", "cast")
"""Axes whose values need no axis name in the names of cells."""
LONGEST_NAME = 80

Settings = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One training, in one run directory."""

    name: str
    labels: Mapping[str, str]
    """Value by axis of the grid."""
    settings: Mapping[str, Any]
    """Options of `hopplus train` by name, and the `algorithm`."""
    part_of: str | None = None
    """Cell whose seeds were split into several runs, this one among them."""

    def is_called(self, name: str) -> bool:
        """Returns whether a name is the cell's own, that of the cell it is a part of, or a label."""
        return name in (self.name, self.part_of, *self.labels.values())

    @property
    def seeds(self) -> tuple[int, ...]:
        """Training seeds."""
        return parse_seeds(str(self.settings.get("seeds", TrainingConfig.seeds)))

    @property
    def steps(self) -> int:
        """Environment steps per seed."""
        return int(self.settings.get("steps", TrainingConfig.steps))

    def argv(self) -> list[str]:
        """Returns the training command, as arguments of `hopplus`."""
        rest = {key: value for key, value in self.settings.items() if key != "algorithm"}
        return ["train", self.settings["algorithm"], *options(rest)]


@dataclass(frozen=True)
class Judge:
    """Evaluation of runs after training."""

    name: str
    command: str
    settings: Mapping[str, Any]
    only: tuple[str, ...] = ()
    """Names or labels of the judged cells; empty for all."""

    def judges(self, cell: Cell) -> bool:
        """Returns whether it judges a cell."""
        return not self.only or any(map(cell.is_called, self.only))

    def argv(self, run: Path) -> list[str]:
        """Returns the command that judges a run, as arguments of `hopplus`."""
        return [self.command, str(run), *options(self.settings)]


@dataclass(frozen=True)
class SweepPlan:
    """Cells, judges and resources of a sweep."""

    title: str
    cells: tuple[Cell, ...]
    judges: tuple[Judge, ...] = ()
    cpus: int = 1
    """Cores per cell."""
    gpus: float = 0
    """GPUs per cell."""
    reference: str | None = None
    """Label of the cells with which others are compared in the tables."""
    seeds_together: bool = False
    """Keep all seeds of a cell in one run, for any number of workers."""
    parts: int = 1
    """Largest number of runs into which the seeds of a cell are split."""

    def cell(self, name: str) -> Cell:
        """Returns a cell by name."""
        return next(cell for cell in self.cells if cell.name == name)

    def described(self) -> dict[str, Any]:
        """Returns the plan for JSON; `from_description` is the inverse."""
        return asdict(self)


def narrowed(plan: SweepPlan, names: Sequence[str]) -> SweepPlan:
    """Returns the plan with the named or labelled cells only; all cells for an empty list.

    Raises:
        InputError: If a name fits no cell.
    """
    for name in names:
        if not any(cell.is_called(name) for cell in plan.cells):
            known = {known for cell in plan.cells for known in (cell.name, *cell.labels.values())}
            raise InputError(f"no cell of {plan.title} is called {name!r}{nearest(name, known)}")
    return replace(plan, cells=tuple(cell for cell in plan.cells if not names or any(map(cell.is_called, names))))


def from_description(described: Mapping[str, Any]) -> SweepPlan:
    """Returns the plan that `described` turned into plain values."""
    parts = {
        "cells": tuple(Cell(**cell) for cell in described["cells"]),
        "judges": tuple(Judge(**{**judge, "only": tuple(judge["only"])}) for judge in described["judges"]),
    }
    return SweepPlan(**{**described, **parts})


def options(settings: Mapping[str, Any]) -> list[str]:
    """Returns settings as command-line options: `--inter`, `--no-inter`, `--hidden 128 128`, `--steps 500000`."""
    argv: list[str] = []
    for key, value in settings.items():
        option = key.replace("_", "-")
        if isinstance(value, bool):
            argv.append(f"--{option}" if value else f"--no-{option}")
        elif isinstance(value, list | tuple):
            argv += [f"--{option}", *map(str, value)]
        else:
            argv += [f"--{option}", str(value)]
    return argv


def read_plan(path: Path) -> SweepPlan:
    """Returns the plan of a TOML file. Raises InputError for a faulty file."""
    try:
        description = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no sweep file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    try:
        return make_plan(description, path.stem, path.parent)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def make_plan(description: Mapping[str, Any], title: str, directory: Path = Path()) -> SweepPlan:
    """Returns the plan of a mapping.

    Args:
        description: Contents of a sweep file.
        title: Title of a sweep that has none.
        directory: Directory of the files that the sweep names.
    """
    _check_keys("a sweep", description, KEYS)
    cells = _cells(description, directory)
    judges = _judges(description, cells, directory)
    resources = _resources(description)
    reference = description.get("reference")
    if reference is not None and not any(reference in cell.labels.values() for cell in cells):
        raise InputError(f"reference: no cell is called {reference!r}")
    if not isinstance(description.get("title", ""), str):
        raise InputError(f"title must be a text, not {description['title']!r}")
    together = description.get("seeds_together", False)
    if not isinstance(together, bool):
        raise InputError(f"seeds_together must be true or false, not {together!r}")
    return SweepPlan(
        description.get("title", title),
        tuple(cells),
        judges,
        int(resources.get("cpus", 1)),
        resources.get("gpus", 0),
        reference,
        together,
    )


def _cells(description: Mapping[str, Any], directory: Path) -> list[Cell]:
    common = _table(description, "common")
    for key in [*common, *itertools.chain.from_iterable(_tables(description, "cells"))]:
        if key in RESERVED:
            raise InputError(f"{key!r} cannot be set: the sweep sets it")
    cells = [*_grid_cells(description, common), *_single_cells(description, common)]
    if not cells:
        raise InputError("the sweep has no cells: give it [grid] with a list of algorithms, or [[cells]]")
    cells = [_with_plugin_path(cell, directory) for cell in cells]
    _check_names([cell.name for cell in cells], "cells")
    return cells


def _judges(description: Mapping[str, Any], cells: Sequence[Cell], directory: Path) -> tuple[Judge, ...]:
    common = _table(description, "common")
    plugin = {"plugin": str(directory.resolve() / common["plugin"])} if "plugin" in common else {}
    judges = tuple(_judge(number, table, plugin) for number, table in enumerate(_tables(description, "judge")))
    for judge in judges:
        for name in judge.only:
            if not any(cell.is_called(name) for cell in cells):
                raise InputError(f"the judge {judge.name!r} is for {name!r}, and no cell is called so")
    for cell in cells:
        _check_names([judge.name for judge in judges if judge.judges(cell)], f"judges of the cell {cell.name}")
    return judges


def _resources(description: Mapping[str, Any]) -> Settings:
    resources = _table(description, "resources")
    _check_keys("[resources]", resources, RESOURCES)
    for key, value in resources.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < (key == "cpus"):
            raise InputError(f"resources: {key} must be a number, at least {int(key == 'cpus')}, not {value!r}")
    return resources


def split_seeds(plan: SweepPlan, parts: int) -> SweepPlan:
    """Returns the plan with the seeds of each cell split into a number of runs, or in one if `seeds_together`.

    The seeds of a run are computed together, which compiles once and is no slower. They are therefore split only where
    some workers would otherwise be idle.
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
            seeds_text = ",".join(map(str, group))
            name = f"{cell.name}-seeds-{seeds_text.replace(',', '-')}"
            settings = {**cell.settings, "seeds": seeds_text}
            cells.append(replace(cell, name=name, settings=settings, part_of=cell.name))
    return replace(plan, cells=tuple(cells), parts=parts)


def _grid_cells(description: Mapping[str, Any], common: Settings) -> Iterator[Cell]:
    """Yields all combinations of the axis values, grid by grid."""
    named = _table(description, "values")
    for grid in _tables(description, "grid"):
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
            labels = {axis: label for axis, label, _ in chosen}
            yield _cell(_grid_name(labels, grid), labels, settings)


def _value(axis: str, value: Any, named: Mapping[str, Any]) -> tuple[str, Settings]:
    """Returns the label of an axis value, and its settings."""
    if isinstance(value, str) and named:
        if value not in named:
            raise InputError(f"there is no [values.{axis}.{value}]{nearest(value, named)}")
        value = {"name": value, **named[value]}
    if isinstance(value, dict):
        settings = {key: setting for key, setting in value.items() if key != "name"}
        return str(value.get("name", " ".join(map(str, settings.values())))), settings
    label = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return label, {axis: value}


def _grid_name(labels: Mapping[str, str], grid: Mapping[str, Any]) -> str:
    """Returns the name of a cell: the labels that distinguish it within its grid."""
    parts = []
    for axis, label in labels.items():
        value = grid[axis]
        if not isinstance(value, list):
            continue
        is_numeric = all(isinstance(setting, int | float | list) for setting in value)
        parts.append(f"{axis}-{label}" if is_numeric and axis not in SELF_EXPLANATORY else label)
    return "-".join(parts) or "-".join(labels.values())


def _single_cells(description: Mapping[str, Any], common: Settings) -> Iterator[Cell]:
    for table in _tables(description, "cells"):
        settings = {**common, **{key: value for key, value in table.items() if key != "name"}}
        all_settings = {"game": TrainingConfig.game, **settings}
        labels = {key: str(value) for key, value in all_settings.items() if key in SELF_EXPLANATORY}
        name = str(table.get("name", "-".join(str(table[key]) for key in SELF_EXPLANATORY if key in table) or "cell"))
        yield _cell(name, {**labels, "name": name} if "name" in table else labels, settings)


def _cell(name: str, labels: Mapping[str, str], settings: Settings) -> Cell:
    if not isinstance(settings.get("algorithm"), str):
        raise InputError(f"the cell {name!r} has no algorithm")
    for key, value in settings.items():
        parts = value if isinstance(value, list) else [value]
        if key in RESERVED:
            raise InputError(f"{key!r} cannot be set: the sweep sets it")
        if not all(isinstance(part, str | int | float | bool) for part in parts):
            raise InputError(f"{key} of the cell {name!r} is not a number, a text, a truth value or a list of them")
    return Cell(file_name(name, LONGEST_NAME), dict(labels), settings)


def _with_plugin_path(cell: Cell, directory: Path) -> Cell:
    """Returns the cell with the full path of its plugin."""
    if "plugin" not in cell.settings:
        return cell
    return replace(cell, settings={**cell.settings, "plugin": str(directory.resolve() / cell.settings["plugin"])})


def _judge(number: int, table: Mapping[str, Any], plugin: Settings) -> Judge:
    settings = {key: value for key, value in table.items() if key not in ("name", "command", "only")}
    command = table.get("command", "evaluate")
    if command not in JUDGES:
        raise InputError(f"a judge's command is one of {', '.join(JUDGES)}, not {command!r}")
    for key in settings:
        if key in ("run", "runs", "json"):
            raise InputError(f"{key!r} cannot be set: the sweep sets it")
    only = table.get("only", [])
    if not isinstance(only, list):
        raise InputError(f"a judge's `only` is a list of cells, not {only!r}")
    name = str(table.get("name", f"{command} {number + 1}"))
    return Judge(name, command, {**plugin, **settings}, tuple(map(str, only)))


def _check_keys(what: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise InputError(f"{what} has no {key!r}{nearest(key, known)}")


def _check_names(names: Sequence[str], what: str) -> None:
    seen = set()
    for name in names:
        if name.casefold() in seen:
            raise InputError(f"two {what} are called {name!r}: give them names of their own")
        seen.add(name.casefold())


def _table(description: Mapping[str, Any], key: str) -> Settings:
    value = description.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{key} must be a table, [{key}], not {value!r}")
    return value


def _tables(description: Mapping[str, Any], key: str) -> list[Settings]:
    """Returns a list of tables; a single table counts as a list of one."""
    value = description.get(key, [])
    tables = value if isinstance(value, list) else [value]
    if not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{key} must be a table, [[{key}]], not {value!r}")
    return tables
