"""The training loop: compiled calls for all seeds at once; between them the host runs callbacks.

Of several processes, each runs this loop, and the first one writes.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.algorithms.base import State
from hopplus.core.sharding import any_process
from hopplus.core.struct import where_first
from hopplus.training import callbacks, checkpoint
from hopplus.training.callbacks import Callback, CallResult, Checkpointer, Watch
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import Experiment
from hopplus.training.logging import Log
from hopplus.training.progress import Progress
from hopplus.training.run import Run
from hopplus.training.summary import log_lines, summarize


def train(
    run: Run | None,
    experiment: Experiment,
    saved: checkpoint.Checkpoint | None = None,
    watch: Watch = lambda lines, experiment: None,
    checkpoint_seconds: float = 30.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Trains from the start or from a checkpoint, until every seed has had its steps or reached its target.

    Args:
        run: Run directory; None in all processes but the first, which write nothing.
        saved: Checkpoint to resume from.
        watch: Called after every compiled call.
        checkpoint_seconds: Seconds between checkpoints.
        should_stop: Asked after every compiled call. Then, as on any exception, the training saves itself; it ends with
            KeyboardInterrupt. Processes that train together stop when any of them is asked to.

    Returns:
        The summary, kept as evaluation/final.json.
    """
    loop = CompiledLoop(experiment)
    progress = Progress(**saved.notes) if saved else Progress()
    states = _initial_states(experiment, loop, saved)
    log = Log(run, progress.calls * experiment.training.iterations_per_call) if run else None
    checkpointer = Checkpointer(run, checkpoint_seconds, states, progress, is_saved=saved is not None)
    after_call = _callbacks(experiment, loop, log, checkpointer, watch)
    check = callbacks.check_divergence(experiment, run)
    started, ended = time.perf_counter() - progress.seconds, False
    try:
        while (active := _active(experiment, states, progress)).any():
            result = _call(experiment, loop, states, active, progress)
            check(result, progress)
            progress.calls += 1
            progress.seconds = time.perf_counter() - started
            for callback in after_call:
                callback(result, progress)
            states = result.states
            is_due, ended = any_process(checkpointer.is_due, should_stop())
            if is_due:
                checkpointer.save()
            if ended:
                raise KeyboardInterrupt
        ended = True
    finally:
        try:
            # A process that fails alone cannot gather what the others hold.
            if ended or jax.process_count() == 1:
                checkpointer.save()
        finally:
            if log:
                log.close()
    summary = summarize(experiment, states, loop.evaluate(states, 0), progress)
    if run:
        run.write_evaluation("final", summary)
    return summary


def _initial_states(experiment: Experiment, loop: CompiledLoop, saved: checkpoint.Checkpoint | None) -> State:
    """Fresh states, or those of a checkpoint; the first programs compile meanwhile."""
    if saved is None:
        loop.prefetch(0, experiment.evaluates)
        return loop.init_states()
    states = loop.shard_states(checkpoint.restore(loop.template, saved.arrays))
    loop.prefetch(int(np.min(states.steps)), experiment.evaluates)
    return states


def _callbacks(
    experiment: Experiment, loop: CompiledLoop, log: Log | None, checkpointer: Checkpointer, watch: Watch
) -> list[Callback]:
    """Callbacks after each compiled call, in order."""
    return [
        callbacks.evaluate(experiment, loop),
        callbacks.time_parts(experiment, loop),
        callbacks.note_return_drops(experiment),
        callbacks.write_log(log),
        checkpointer.keep,
        lambda result, _: watch(result.lines, experiment),
    ]


def _active(experiment: Experiment, states: State, progress: Progress) -> np.ndarray:
    """Seeds that still train."""
    reached = np.array([str(seed) in progress.reached for seed in experiment.seeds])
    return (np.asarray(states.steps) < experiment.training.steps) & ~reached


def _call(
    experiment: Experiment, loop: CompiledLoop, states: State, active: np.ndarray, progress: Progress
) -> CallResult:
    """One compiled call; seeds that no longer train keep their states."""
    steps = int(np.asarray(states.steps)[active].min())
    after, metrics, finite = loop.iterate(states, steps)
    lines = log_lines(experiment, after, metrics, active, progress.calls + 1)
    kept = after if active.all() else where_first(jnp.asarray(active), after, states)
    return CallResult(states, kept, lines, np.asarray(finite), steps)
