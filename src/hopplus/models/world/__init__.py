"""World models: training rows, losses and metrics."""
