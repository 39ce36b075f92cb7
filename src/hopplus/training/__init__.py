"""Training: experiments, the training loop, checkpoints, run directories, logs and pretrained policies."""

__all__ = [
    "callbacks",
    "casting",
    "checkpoint",
    "cloning",
    "compiled_loop",
    "episode_beliefs",
    "experiment",
    "fitted",
    "initialization",
    "logging",
    "policies",
    "population",
    "pretrained",
    "progress",
    "run",
    "run_list",
    "summary",
    "trainer",
]
