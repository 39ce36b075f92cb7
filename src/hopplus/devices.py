"""One program on several devices, of one host or of several: environments, and the rows of a step of an optimiser, are
divided among them; all else is on each of them.

The functions that a program is made of (`each_share`, `divided`, `whole`) change nothing unless it is traced for
several devices (`jax.set_mesh`): a program for one device is what it would be without them.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from hopplus.errors import InputError

AXIS = "environments"
"""What is divided, by the name of the devices' only axis."""
EVERYWHERE = PartitionSpec()
PATIENCE = 3600
"""Seconds for which processes wait for each other; one that has died is noticed earlier, by JAX."""
_meetings = itertools.count()
"""Numbers of the meetings of this process, which are the same in all that compute together."""


# --------------------------------------------------------------------------------------------- which devices there are


def join(coordinator: str, processes: int, process: int) -> None:
    """Make this process one of several that compute together; `auto`: as Slurm or Open MPI has started them.

    Must come before JAX has computed anything.
    """
    if coordinator == "auto":
        try:
            jax.distributed.initialize()
        except ValueError:
            raise InputError("--coordinator auto: neither Slurm (srun) nor Open MPI has started this process") from None
        return
    host, colon, port = coordinator.rpartition(":")
    if not host or not colon or not port.isdigit():
        raise InputError(f"--coordinator is HOST:PORT of the first process, or auto, not {coordinator!r}")
    if processes < 1 or not 0 <= process < processes:
        raise InputError(f"--process must be from 0 to {processes - 1} of --processes {processes}, not {process}")
    jax.distributed.initialize(coordinator, processes, process)


def mesh_of(devices: int) -> Mesh | None:
    """So many devices of every process, in a row; None where that is a single one. InputError if there are fewer."""
    if devices < 1:
        raise InputError(f"--devices must be at least 1, not {devices}")
    there = jax.local_device_count()
    if devices > there:
        raise InputError(
            f"--devices {devices}: this process has {there} ({jax.default_backend()}); to divide a CPU, set"
            f" XLA_FLAGS=--xla_force_host_platform_device_count={devices}"
        )
    chosen = [device for process in range(jax.process_count()) for device in jax.local_devices(process)[:devices]]
    return Mesh(np.array(chosen), (AXIS,), axis_types=(AxisType.Auto,)) if len(chosen) > 1 else None


def is_first() -> bool:
    """Whether this is the process that writes, of those that compute together."""
    return jax.process_index() == 0


def meet() -> None:
    """Wait until all processes that compute together have come here.

    A program of several processes must begin in all of them within seconds (on CPUs Gloo gives up after 30), and before
    it one may compile, read or write for minutes longer than another.
    """
    if jax.process_count() > 1:
        from jax._src import distributed  # the only barrier for which nothing has to be computed together

        client: Any = distributed.global_state.client
        client.wait_at_barrier(f"hopplus-{next(_meetings)}", 1000 * PATIENCE)


def anyone(*wishes: bool) -> list[bool]:
    """Which wishes any process has: all must ask in the same order, and all get the same answer."""
    if jax.process_count() == 1:
        return list(wishes)
    meet()
    every: Any = multihost_utils.process_allgather(np.array(wishes))
    return [bool(wish) for wish in every.any(0)]


# ----------------------------------------------------------------------------------------------- where arrays are kept


def spec(leaf: Any, axis: int) -> PartitionSpec:
    """An array divided along an axis; everywhere, if it has no such axis."""
    return PartitionSpec(*[None] * axis, AXIS) if leaf.ndim > axis else EVERYWHERE


def put(tree: Any, places: Any) -> Any:
    """A tree that every process has as a whole, as arrays in their places."""

    def one(leaf: Any, place: NamedSharding) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data, impl = np.asarray(jax.random.key_data(leaf)), jax.random.key_impl(leaf)
            return jax.random.wrap_key_data(one(data, place), impl=impl)
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, place, lambda index: array[index])

    return jax.tree.map(one, tree, places)


def gathered(tree: Any) -> Any:
    """A tree of arrays such that this process can read all of it: processes that share it must all ask for it."""
    if jax.process_count() == 1:
        return tree
    meet()
    mesh = jax.tree.leaves(tree)[0].sharding.mesh
    return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, EVERYWHERE))(tree)


# -------------------------------------------------------------------------------------------------- parts of a program


def in_use() -> int:
    """For how many devices a program is being traced."""
    return jax.sharding.get_abstract_mesh().shape.get(AXIS, 1)


def each_share(function: Callable[..., Any], environments: int, inputs: Any, outputs: Any) -> Callable[..., Any]:
    """The function computed by each device for its own share of environments, where these can be divided: nothing that
    it does may depend on what other environments do. `inputs` and `outputs` say how arguments and results are divided
    (`spec`)."""
    if in_use() == 1 or environments % in_use():
        return function
    return jax.shard_map(function, in_specs=inputs, out_specs=outputs, check_vma=False)


def divided(tree: Any, axis: int) -> Any:
    """The same arrays, divided along an axis where it can be: what is computed from them is divided too."""
    if in_use() == 1:
        return tree

    def one(leaf: Any) -> Any:
        fits = leaf.ndim > axis and leaf.shape[axis] % in_use() == 0
        return jax.lax.with_sharding_constraint(leaf, spec(leaf, axis)) if fits else leaf

    return jax.tree.map(one, tree)


def whole(tree: Any) -> Any:
    """The same arrays, on every device."""
    return tree if in_use() == 1 else jax.lax.with_sharding_constraint(tree, EVERYWHERE)
