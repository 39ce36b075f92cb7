"""Callbacks of the training loop after each compiled call: divergence, evaluation, timing, drops, logging, saving."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.algorithms.base import State
from hopplus.core.sharding import gather
from hopplus.training import checkpoint
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import Experiment
from hopplus.training.logging import Line, Log
from hopplus.training.progress import Progress
from hopplus.training.run import Run

DROP_METRICS = ("return", "entropy", "kl", "value_loss", "moa_cross_entropy", "plan_loss", "plan_head_loss")
"""Metrics that are compared when a return drops."""
DROP_SHARE = 0.02
"""Relative drop below the best return that is reported."""
DROP_WINDOW = 3
"""Calls whose mean is compared: single calls are noisy."""


class DivergedError(Exception):
    """A loss or parameter is not finite; the last good state has been saved."""


@dataclass
class CallResult:
    """Result of one compiled call."""

    before: State
    """States before the call."""
    states: State
    lines: list[Line]
    """Metrics by seed that still trains; callbacks add to them."""
    finite: np.ndarray
    """Whether all parameters are finite, by seed."""
    steps_before: int
    """Fewest steps of a seed before the call."""


Callback = Callable[[CallResult, Progress], None]
Watch = Callable[[Sequence[Line], Experiment], None]
"""Called after every compiled call with its log lines, one per seed that still trains."""


def save_checkpoint(run: Run | None, number: int, states: State, notes: Mapping[str, Any]) -> Path | None:
    """Writes a checkpoint in the process that has the run; all processes of a training must call it."""
    gathered = gather(states)
    return checkpoint.save(run.checkpoints, number, gathered, notes) if run else None


def check_divergence(experiment: Experiment, run: Run | None) -> Callback:
    """Saves the states before the call and raises DivergedError where a loss or parameter is not finite after it."""

    def check(result: CallResult, progress: Progress) -> None:
        for line in result.lines:
            not_finite = [
                f"{name} of seat {seat}"
                for name in ("policy_loss", "value_loss", "entropy")
                for seat in experiment.learners
                if name in line and not np.isfinite(line[name][seat]) and sum(row[seat] for row in line["trained_on"])
            ]
            if not result.finite[experiment.seeds.index(line["seed"])]:
                not_finite.append("a parameter")
            if not_finite:
                path = save_checkpoint(run, progress.calls, result.before, progress.notes())
                raise DivergedError(
                    f"seed {line['seed']}: {' and '.join(not_finite)} is not a finite number after iteration"
                    f" {line['iteration']}; the last good state is {path}"
                )

    return check


def evaluate(experiment: Experiment, loop: CompiledLoop) -> Callback:
    """Evaluates the greedy policies where an evaluation is due, and notes which seeds have reached the target."""

    def run_if_due(result: CallResult, progress: Progress) -> None:
        if not experiment.evaluates_between(result.steps_before, min(line["steps"] for line in result.lines)):
            return
        by_seat = loop.evaluate(result.states, progress.calls).mean(1)
        for line in result.lines:
            returns = by_seat[experiment.seeds.index(line["seed"])]
            line["evaluation"] = returns.tolist()
            mean = float(returns[list(experiment.learners)].mean())
            if experiment.training.target is not None and mean >= experiment.training.target:
                progress.reached[str(line["seed"])] = {
                    "steps": line["steps"],
                    "seconds": progress.seconds,
                    "evaluation": mean,
                }

    return run_if_due


def time_parts(experiment: Experiment, loop: CompiledLoop) -> Callback:
    """Adds the seconds so far to the lines, and after the first call the seconds of each part of an iteration."""

    def add_times(result: CallResult, progress: Progress) -> None:
        is_due = experiment.training.time_parts and progress.calls == 1
        seconds = loop.time_parts(result.states, result.steps_before) if is_due else {}
        for line in result.lines:
            line.update({"seconds": progress.seconds, **seconds})

    return add_times


def note_return_drops(experiment: Experiment) -> Callback:
    """Adds `fell` to the line of a seed whose return drops below its best: since when, and which metrics moved."""

    def note(result: CallResult, progress: Progress) -> None:
        for line in result.lines:
            note_return_drop(line, experiment.learners, progress)

    return note


def note_return_drop(line: Line, learners: Sequence[int], progress: Progress) -> None:
    """Compares the recent return of a seed with its best."""
    seed = str(line["seed"])
    means = {name: float(np.mean([line[name][seat] for seat in learners])) for name in DROP_METRICS if name in line}
    now = {name: value for name, value in means.items() if np.isfinite(value)}  # no finite loss without targets
    if "return" not in now:
        return
    recent = [*progress.recent.get(seed, []), {**now, "steps": float(line["steps"])}][-DROP_WINDOW:]
    progress.recent[seed] = recent
    if len(recent) < DROP_WINDOW:
        return
    always = [name for name in recent[0] if all(name in metrics for metrics in recent)]
    mean = {name: float(np.mean([metrics[name] for metrics in recent])) for name in always}
    best = progress.best.setdefault(seed, mean)
    if mean["return"] >= best["return"]:
        progress.best[seed] = mean
    dropped = mean["return"] < best["return"] - DROP_SHARE * abs(best["return"])
    if dropped and not progress.dropped.get(seed, False):
        moved = {name: [best[name], mean[name]] for name in mean if name in best and name not in ("return", "steps")}
        line["fell"] = {"from": best["return"], "to": mean["return"], "best_at_steps": best["steps"], "moved": moved}
    progress.dropped[seed] = dropped


def write_log(log: Log | None) -> Callback:
    """Appends the lines to the run's log."""

    def write(result: CallResult, progress: Progress) -> None:
        if log:
            log.write(result.lines)

    return write


class Checkpointer:
    """Saves the newest good states: when due, and when the training ends, whatever ends it."""

    def __init__(self, run: Run | None, seconds: float, states: State, progress: Progress, is_saved: bool) -> None:
        self._run, self._seconds = run, seconds
        self._saved_at = time.perf_counter()
        self._good = (progress.calls, states, progress.notes())
        self._is_saved = is_saved

    @property
    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough."""
        return time.perf_counter() - self._saved_at >= self._seconds

    def keep(self, result: CallResult, progress: Progress) -> None:
        """Takes the states of a call as the newest good ones."""
        self._good, self._is_saved = (progress.calls, result.states, progress.notes()), False

    def save(self) -> None:
        """Saves the newest good states, unless they are the initial ones or saved already."""
        if not self._is_saved and self._good[0]:
            save_checkpoint(self._run, *self._good)
            self._saved_at, self._is_saved = time.perf_counter(), True
