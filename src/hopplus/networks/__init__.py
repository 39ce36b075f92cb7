"""Flax modules: encoders, policies and values, opponent models, world models."""

from hopplus.networks.actor_critic import ActorCritic, BeliefActorCritic
from hopplus.networks.encoders import ENCODERS, Encoder

__all__ = ["ENCODERS", "ActorCritic", "BeliefActorCritic", "Encoder"]
