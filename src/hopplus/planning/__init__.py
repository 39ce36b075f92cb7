"""Planning: simulator, belief rollouts, tree search and imagined rollouts, on beliefs about co-players."""

__all__ = ["catalog", "imagination", "plan", "playout", "rollouts", "simulation", "simulator", "tree", "tree_search"]
