"""Training: experiments, the training loop, checkpoints, run directories, logs and pretrained policies."""
