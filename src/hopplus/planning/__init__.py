"""Planning: simulator, tree search and imagined rollouts, on beliefs about co-players."""
