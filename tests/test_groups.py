"""Tests of a group run in one worker of pytest-xdist, so that what they share is made once."""

import pytest


@pytest.mark.xdist_group("example")
def test_xdist_knows_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    """Some versions of pytest and pytest-xdist ignore groups together, without a word."""
    in_worker = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@example") is in_worker
