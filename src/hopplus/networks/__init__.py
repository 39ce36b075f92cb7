"""Networks: what is seen in, figures out."""

from hopplus.networks.policy_value import ENCODERS, Encoder, PolicyValue

__all__ = ["ENCODERS", "Encoder", "PolicyValue"]
