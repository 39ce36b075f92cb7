"""World models: training rows, losses and metrics."""

__all__ = ["loss", "metrics", "model", "rows"]
