"""Latin hypercubes cover each range evenly, and the standard error comes from their means."""

import pytest
import torch

from fedloom.core.key import Key
from fedloom.diagnostics.cost.latin_hypercube import LatinHypercube, mean_and_error


def test_a_latin_hypercube_visits_every_part_of_each_range_once() -> None:
    cube, draws = LatinHypercube(Key.root(3), 8), []
    for step in range(16):
        cube.start_step(step)
        drawn = torch.zeros(3)
        cube.redraw(drawn, lambda u: u, ())
        draws.append(drawn)
    for first in (0, 8):
        rows = torch.stack(draws[first : first + 8]) * 8
        assert rows.floor().sort(dim=0).values.T.tolist() == [list(range(8))] * 3
    cube.start_step(5)
    again = torch.zeros(3)
    cube.redraw(again, lambda u: u, ())
    assert torch.equal(again, draws[5])


def test_the_standard_error_is_that_of_the_hypercube_means() -> None:
    # the means are 2 and 5, their standard deviation 3 / sqrt 2, over sqrt 2
    assert mean_and_error([1.0, 3.0, 4.0, 6.0], 2) == pytest.approx((3.5, 1.5))
