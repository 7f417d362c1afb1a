"""The first setting in which two configs differ, named with both values."""

from fedloom.settings.config import load
from fedloom.settings.difference import first_difference


def test_the_first_difference_is_named_with_both_values() -> None:
    ours = load({"rounds": 3, "train": {"lr": 0.2}})
    theirs = load({"rounds": 4, "train": {"lr": 0.5}})
    assert first_difference(ours, ours) is None
    assert first_difference(theirs, ours) == "rounds is 4 there and 3 here"
    assert first_difference(theirs, ours, ["rounds"]) == "train.lr is 0.5 there and 0.2 here"
    assert first_difference(theirs, ours, ["rounds", "train"]) is None


def test_a_parameter_that_only_one_has_is_none_in_the_other() -> None:
    ours, theirs = load({"method": "fedprox(mu=0.1)"}), load({"method": "fedprox"})
    assert first_difference(theirs, ours) == "method.fedprox is None there and {'mu': 0.1} here"
