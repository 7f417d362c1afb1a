"""Settings: complete, round trips, and every complaint at once."""

from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedloom.core.errors import UserError
from fedloom.core.spec import Spec
from fedloom.settings import toml
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.overrides import assignment, overlay
from fedloom.settings.presets import names, preset

plain = st.one_of(
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12),
)
keys = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
tables = st.recursive(
    st.dictionaries(keys, st.one_of(plain, st.lists(plain, max_size=3)), max_size=4),
    lambda inner: st.dictionaries(keys, st.one_of(plain, inner), max_size=4),
    max_leaves=12,
)


def pruned(table: dict) -> dict:
    """Without empty tables, for which no line is written."""
    kept = {k: pruned(v) if isinstance(v, dict) else v for k, v in table.items()}
    return {k: v for k, v in kept.items() if v != {}}


@given(tables)
def test_what_is_written_as_toml_reads_back(table: dict) -> None:
    assert pruned(tomllib.loads(toml.dumps(table))) == pruned(table)


def test_a_config_survives_its_own_text() -> None:
    raw = overlay(
        {
            "method": "fedprox(mu=0.3)+fedavgm",
            "data": {"partition": "dirichlet-balanced(alpha=0.6)"},
        },
        [
            ("method.fedavgm.beta", 0.7),
            ("train.clip", 10),
            ("data.augment", ["flip", {"name": "pad-crop", "padding": 2}]),
        ],
        DEFAULTS,
    )
    config = load(raw)
    assert load(tomllib.loads(config.text())) == config
    assert config.method_specs == [Spec("fedprox", {"mu": 0.3}), Spec("fedavgm", {"beta": 0.7})]
    assert config.data.augment == (Spec("flip"), Spec("pad-crop", {"padding": 2}))


@pytest.mark.parametrize("name", names())
def test_every_preset_is_sound_and_says_its_command(name: str) -> None:
    found = preset(name)
    assert isinstance(load(found.settings), Config)
    assert "fedloom " in found.about


def test_a_word_without_its_name_keeps_the_default() -> None:
    assert load({"data": {"partition": {"alpha": 9.0}}}).data.partition == Spec(
        "dirichlet", {"alpha": 9.0}
    )
    assert load({"sample": {"per_round": 2}}).sample == Spec("uniform", {"per_round": 2})


def test_all_complaints_come_at_once_with_the_nearest_name() -> None:
    with pytest.raises(UserError) as caught:
        load({"round": 3, "train": {"lr": -1, "batch": "x"}, "engine": "warp"})
    said = str(caught.value)
    assert "4 problems" in said
    for piece in ("did you mean 'rounds'", "train.lr=-1", "train.batch='x'", "no engine 'warp'"):
        assert piece in said


@pytest.mark.parametrize(
    ("wrong", "suggestion"),
    [
        ({"lr": 0.1}, "no setting 'lr'; did you mean 'train.lr'?"),
        ({"batch": 8}, "no setting 'batch'; did you mean 'train.batch'?"),
        ({"clients": 8}, "no setting 'clients'; did you mean 'data.clients'?"),
        ({"per_round": 2}, "no setting 'per_round'; did you mean 'sample.per_round'?"),
        ({"every": 2}, "no setting 'every'; did you mean 'evaluate.every'?"),
        ({"train": {"seed": 1}}, "no setting 'train.seed'; did you mean 'seed'?"),
        ({"momentums": 0.9}, "no setting 'momentums'; did you mean 'train.momentum'?"),
        ({"train": {"momentums": 0.9}}, "no setting 'train.momentums'; did you mean 'momentum'?"),
        ({"zzz": 1}, "no setting 'zzz' (choices: seed, "),
    ],
)
def test_an_unknown_setting_that_exists_in_another_table_is_suggested_by_its_full_name(
    wrong: dict, suggestion: str
) -> None:
    with pytest.raises(UserError, match=re.escape(suggestion)):
        load(wrong)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), ("true", True), ("None", None), ("[1, 2]", [1, 2]), ("abc", "abc"), ("", "")],
)
def test_assignments_read_values_as_a_person_means_them(text: str, value: object) -> None:
    assert assignment(f"a.b={text}") == ("a.b", value)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"train": {"lr": True}}, "train.lr"),
        ({"rounds": True}, "rounds"),
        ({"train": {"clip": False}}, "train.clip"),
        ({"data": {"clients": True}}, "data.clients"),
    ],
)
def test_true_is_not_read_as_the_number_1(settings: dict, name: str) -> None:
    with pytest.raises(UserError, match=rf"{re.escape(name)}: (true|false) is not a number"):
        load(settings)


def test_settings_that_are_true_or_false_take_both() -> None:
    assert load({"compile": True, "train": {"drop_last": True}}).train.drop_last
