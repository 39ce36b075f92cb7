"""Configs: declared constraints, and nested groups with flat names."""

import dataclasses
from typing import Annotated, Any, Literal

import pytest

from hopplus.configs import CONFIGS, HopConfig, HopPlusConfig, TrainingConfig, check_fields
from hopplus.configs.constraints import Interval, at_least, more_than
from hopplus.core.errors import InputError
from hopplus.core.settings import flatten, replace_settings, setting_types


@pytest.mark.parametrize("config", [TrainingConfig(), *(config() for config in CONFIGS.values())])
def test_defaults_keep_their_constraints(config: Any) -> None:
    check_fields(config)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, not 0"),
        ({"gamma": 1.5}, "gamma must be from 0 to 1, not 1.5"),
        ({"gamma": -0.1}, "gamma must be from 0 to 1"),
        ({"learning_rate": 0.0}, "learning_rate must be more than 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be more than 0"),
        ({"max_grad_norm": float("inf")}, "max_grad_norm must be more than 0"),
        ({"hidden": ()}, "hidden must have at least one entry"),
        ({"hidden": (8, 0)}, "hidden must be at least 1, not 0"),
        ({"encoder": "round"}, "encoder must be one of dense, centred, full, not 'round'"),
        ({"minibatch_size": 0}, "minibatch_size must be at least 1"),
        ({"real_ratio": 0.0}, "real_ratio must be more than 0 and at most 1"),
        ({"goal_switch_probability": 1.0}, "goal_switch_probability must be at least 0 and less than 1"),
        ({"temperature": 0.0}, "temperature must be more than 0"),
        ({"moa_hidden": (0,)}, "moa_hidden must be at least 1"),
    ],
)
def test_values_out_of_range_are_named(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        check_fields(replace_settings(HopPlusConfig(), settings))


def test_none_is_allowed_where_a_setting_is_optional() -> None:
    check_fields(replace_settings(HopPlusConfig(), {"minibatch_size": None, "temperature": None}))


@dataclasses.dataclass(frozen=True)
class Example:
    low: Annotated[int, at_least(2)] = 2
    high: Annotated[float, more_than(0)] = 1.0
    both: Annotated[float, Interval(0, 1, open_high=True)] = 0.5
    word: Literal["a", "b"] = "a"
    optional: Annotated[float, more_than(0)] | None = None


@pytest.mark.parametrize("changes", [{"low": 1}, {"high": 0.0}, {"both": 1.0}, {"word": "c"}, {"optional": -1.0}])
def test_every_kind_of_constraint_is_checked(changes: dict[str, Any]) -> None:
    check_fields(Example())
    with pytest.raises(InputError, match=next(iter(changes))):
        check_fields(dataclasses.replace(Example(), **changes))


@pytest.mark.parametrize("config", [config() for config in CONFIGS.values()])
def test_names_are_unique_over_all_groups(config: Any) -> None:
    def names(part: Any) -> list[str]:
        values = [(field.name, getattr(part, field.name)) for field in dataclasses.fields(part)]
        return [
            leaf for name, value in values for leaf in (names(value) if dataclasses.is_dataclass(value) else [name])
        ]

    assert len(names(config)) == len(set(names(config)))
    assert not set(names(config)) & set(flatten(TrainingConfig())), "training and algorithm share the command line"
    assert list(flatten(config)) == names(config) == list(setting_types(config))


def test_flat_names_reach_their_group_and_nothing_else_changes() -> None:
    changed = replace_settings(HopConfig(), {"codes": 7, "simulations": 9, "gamma": 0.5})
    assert (changed.beliefs.codes, changed.planning.simulations, changed.gamma) == (7, 9, 0.5)
    before, after = flatten(HopConfig()), flatten(changed)
    assert {name for name in before if before[name] != after[name]} == {"codes", "simulations", "gamma"}
    assert replace_settings(HopConfig(), flatten(changed)) == changed
    with pytest.raises(KeyError, match="stpes"):
        replace_settings(HopConfig(), {"stpes": 1})
