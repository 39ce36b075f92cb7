"""Networks: what is seen in, figures out."""

from hopplus.networks.encoding import ENCODERS, Encoder
from hopplus.networks.policy_value import PolicyValue

__all__ = ["ENCODERS", "Encoder", "PolicyValue"]
