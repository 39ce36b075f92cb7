"""Data parallelism over several devices, on one host or several.

Environments and the transitions of an optimiser step are sharded; everything else is replicated. The functions used
inside a program (`shard_environments`, `shard`, `replicate`) do nothing unless it is traced for several devices
(`jax.set_mesh`), so that a program for one device is the same with and without them.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from hopplus.core.errors import InputError

AXIS = "environments"
"""Name of the mesh's only axis, along which arrays are sharded."""
REPLICATED = PartitionSpec()
BARRIER_TIMEOUT = 3600
"""Seconds that processes wait for each other; JAX detects a dead process earlier."""
_barriers = itertools.count()
"""Barrier numbers, the same in all processes of one run."""


# ------------------------------------------------------------------------------------------------ devices and processes


def join(coordinator: str, processes: int, process: int) -> None:
    """Connects this process to the other processes of a run. Must be called before any JAX computation.

    Args:
        coordinator: HOST:PORT of the first process; "auto" takes all three values from Slurm or Open MPI.
        processes: Number of processes.
        process: Index of this process.
    """
    if coordinator == "auto":
        try:
            jax.distributed.initialize()
        except ValueError:
            raise InputError("--coordinator auto: neither Slurm (srun) nor Open MPI has started this process") from None
        return
    host, colon, port = coordinator.rpartition(":")
    if not host or not colon or not port.isdigit():
        raise InputError(f"--coordinator must be HOST:PORT of the first process, or auto, not {coordinator!r}")
    if processes < 1 or not 0 <= process < processes:
        raise InputError(f"--process must be from 0 to {processes - 1} of --processes {processes}, not {process}")
    jax.distributed.initialize(coordinator, processes, process)


def mesh_of(devices: int) -> Mesh | None:
    """One-dimensional mesh of `devices` devices per process; None if that is a single device.

    Raises InputError if a process has fewer devices.
    """
    if devices < 1:
        raise InputError(f"--devices must be at least 1, not {devices}")
    available = jax.local_device_count()
    if devices > available:
        raise InputError(
            f"--devices {devices}: this process has {available} ({jax.default_backend()}); to split a CPU, set"
            f" XLA_FLAGS=--xla_force_host_platform_device_count={devices}"
        )
    chosen = [device for process in range(jax.process_count()) for device in jax.local_devices(process)[:devices]]
    return Mesh(np.array(chosen), (AXIS,), axis_types=(AxisType.Auto,)) if len(chosen) > 1 else None


def is_first() -> bool:
    """True in the process that writes files."""
    return jax.process_index() == 0


def barrier() -> None:
    """Waits until all processes of the run reach this point.

    A program of several processes must start in all of them within seconds (on CPUs Gloo times out after 30), and
    before it one process may compile, read or write for minutes longer than another.
    """
    if jax.process_count() > 1:
        from jax._src import distributed  # the only barrier that needs no joint computation

        client: Any = distributed.global_state.client
        client.wait_at_barrier(f"hopplus-{next(_barriers)}", 1000 * BARRIER_TIMEOUT)


def any_process(*flags: bool) -> list[bool]:
    """Reduces flags over processes by `or`. All processes must call it in the same order."""
    if jax.process_count() == 1:
        return list(flags)
    barrier()
    gathered: Any = multihost_utils.process_allgather(np.array(flags))
    return [bool(flag) for flag in gathered.any(0)]


# ------------------------------------------------------------------------------------------------- placement of arrays


def spec(leaf: Any, axis: int) -> PartitionSpec:
    """Partition spec of an array sharded along an axis; replicated if it has no such axis."""
    return PartitionSpec(*[None] * axis, AXIS) if leaf.ndim > axis else REPLICATED


def put(tree: Any, shardings: Any) -> Any:
    """Places a tree that every process holds in full, according to a tree of shardings."""

    def place(leaf: Any, sharding: NamedSharding) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data, impl = np.asarray(jax.random.key_data(leaf)), jax.random.key_impl(leaf)
            return jax.random.wrap_key_data(place(data, sharding), impl=impl)
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(place, tree, shardings)


def gather(tree: Any) -> Any:
    """Replicates a tree so that this process can read all of it. All processes must call it."""
    if jax.process_count() == 1:
        return tree
    barrier()
    mesh = jax.tree.leaves(tree)[0].sharding.mesh
    return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, REPLICATED))(tree)


# -------------------------------------------------------------------------------------------- use in a traced program


def device_count() -> int:
    """Number of devices for which the program is being traced."""
    return jax.sharding.get_abstract_mesh().shape.get(AXIS, 1)


def shard_environments(
    function: Callable[..., Any], environments: int, inputs: Any, outputs: Any
) -> Callable[..., Any]:
    """Maps a function over devices, each with its share of the environments.

    Args:
        function: Must treat environments independently of each other.
        environments: Their number; the function is returned unchanged if it is not a multiple of the device count.
        inputs: Partition specs of the arguments (see `spec`).
        outputs: Partition specs of the results.
    """
    if device_count() == 1 or environments % device_count():
        return function
    return jax.shard_map(function, in_specs=inputs, out_specs=outputs, check_vma=False)


def shard(tree: Any, axis: int) -> Any:
    """Constrains arrays to be sharded along an axis, where its size allows; later computation follows."""
    if device_count() == 1:
        return tree

    def constrain(leaf: Any) -> Any:
        fits = leaf.ndim > axis and leaf.shape[axis] % device_count() == 0
        return jax.lax.with_sharding_constraint(leaf, spec(leaf, axis)) if fits else leaf

    return jax.tree.map(constrain, tree)


def replicate(tree: Any) -> Any:
    """Constrains arrays to be replicated on every device."""
    return tree if device_count() == 1 else jax.lax.with_sharding_constraint(tree, REPLICATED)
