"""Near a model the landscape is the parabola given by its eigenvalues; and its picture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.diagnostics.curvature import Eigenpairs, LossSurface, top_eigenpairs
from fedloom.diagnostics.landscape import Landscape, landscape, save_png
from support.golden import golden
from support.golden_surface import golden_surface


@pytest.fixture(scope="module")
def surface_and_eigen() -> tuple[LossSurface, Eigenpairs]:
    surface = golden_surface(golden("fedalign/h_hessian"))
    return surface, top_eigenpairs(surface, 2, Key.root(1))


def test_second_differences_are_the_eigenvalues(
    surface_and_eigen: tuple[LossSurface, Eigenpairs],
) -> None:
    surface, eigen = surface_and_eigen
    step = 1e-3
    loss = landscape(surface, eigen.vectors, span=step, points=3).loss
    for along, value in zip((loss[:, 1], loss[1, :]), eigen.values.tolist(), strict=True):
        assert (along[0] - 2 * along[1] + along[2]) / step**2 == pytest.approx(value, rel=1e-4)
    mixed = (loss[2, 2] - loss[2, 0] - loss[0, 2] + loss[0, 0]) / (4 * step**2)
    assert mixed == pytest.approx(0, abs=1e-4)  # eigenvectors: no curvature between them


def test_each_point_is_the_loss_there(surface_and_eigen: tuple[LossSurface, Eigenpairs]) -> None:
    surface, eigen = surface_and_eigen
    before = surface.weight_vector.clone()
    found = landscape(surface, eigen.vectors, span=2.0, points=5)
    moved = Chain({n: m for n, m in surface.chain.named_children()})
    nn.utils.vector_to_parameters(
        before - 2.0 * eigen.vectors[0] + 1.0 * eigen.vectors[1], moved.parameters()
    )
    assert found.steps.tolist() == [-2, -1, 0, 1, 2]
    assert found.loss[0, 3] == pytest.approx(LossSurface(moved, surface.batches).loss(), rel=1e-12)
    nn.utils.vector_to_parameters(before, moved.parameters())
    assert found.loss[2, 2] == surface.loss()
    assert torch.equal(surface.weight_vector, before)


def test_out_of_time_leaves_the_centre(surface_and_eigen: tuple[LossSurface, Eigenpairs]) -> None:
    surface, eigen = surface_and_eigen
    answers = iter([True] * 9 + [False])
    found = landscape(surface, eigen.vectors, points=7, keep_going=lambda: next(answers))
    assert np.isfinite(found.loss).sum() == 9 and np.isfinite(found.loss[2:5, 2:5]).all()


@pytest.mark.parametrize("hole", [False, True])
def test_the_picture_has_content(hole: bool, tmp_path: Path) -> None:
    steps = np.linspace(-0.5, 0.5, 9)
    loss = 1 + 20 * steps[:, None] ** 2 + 4 * steps[None, :] ** 2
    if hole:
        loss[0], loss[:, -2:] = np.nan, np.nan
    save_png(Landscape(steps, loss), [40.0, 8.0], tmp_path / "x.png", "fedavg, mlp, round 3")
    pixels = imread(tmp_path / "x.png")[..., :3]
    dark = pixels[:, pixels.shape[1] // 2 :].mean(axis=2) < 0.35
    assert pixels.shape[:2] == (720, 1650)
    assert 0.02 < dark.mean() < 0.6 and len(np.unique(pixels[::9, ::9].sum(axis=2))) > 10


def test_a_flat_landscape_can_be_drawn(tmp_path: Path) -> None:
    save_png(
        Landscape(np.linspace(-1, 1, 5), np.ones((5, 5))), [0.0, 0.0], tmp_path / "x.png", "flat"
    )
    assert (tmp_path / "x.png").stat().st_size > 10_000
