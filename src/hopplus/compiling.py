"""Compiler options for programs that run once or for milliseconds, whose time is that of compiling them."""

import functools

import jax

OPTIONS: dict[str, bool | int] = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@functools.cache
def quick_options() -> dict[str, bool | int] | None:
    """Options with which XLA compiles in a third of the time; None where this device or version has none."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda: 0, compiler_options=OPTIONS).lower().compile()
    except Exception:  # XLA says in several ways that it does not know an option
        return None
    return OPTIONS
