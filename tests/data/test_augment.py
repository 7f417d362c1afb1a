"""Augmentations against naive loops over samples that make the same draws."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.spec import Spec
from fedloom.data.augment import AUGMENTS, build, cutout, flip, pad_crop, rotation


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=[torch.uint8, torch.float32, torch.float64], ids=str)
def images(request) -> Tensor:
    return torch.randint(1, 256, (7, 3, 6, 9), generator=seeded(0)).to(request.param)


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_pad_crop_equals_a_loop(images, padding):
    cropped = pad_crop(padding)(images, seeded())
    tops, lefts = torch.randint(2 * padding + 1, (2, 7), generator=seeded()).tolist()
    for image, result, top, left in zip(images, cropped, tops, lefts, strict=True):
        wide = torch.zeros(3, 6 + 2 * padding, 9 + 2 * padding, dtype=images.dtype)
        wide[:, padding : padding + 6, padding : padding + 9] = image
        assert torch.equal(result, wide[:, top : top + 6, left : left + 9])
    assert len(set(zip(tops, lefts, strict=True))) > 1 or padding == 0


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_flip_equals_a_loop(images, chance):
    mirrored = flip(chance)(images, seeded())
    draws = (torch.rand(7, generator=seeded()) < chance).tolist()
    for image, result, turned in zip(images, mirrored, draws, strict=True):
        expected = (
            torch.stack([image[:, :, 8 - column] for column in range(9)], dim=2)
            if turned
            else image
        )
        assert torch.equal(result, expected)
    assert sum(draws) == {0.0: 0, 1.0: 7}.get(chance, sum(draws))


def test_cutout_equals_a_loop(images):
    black = cutout(4)(images, seeded())
    generator = seeded()
    rows, columns = (torch.randint(n, (7,), generator=generator).tolist() for n in (6, 9))
    for image, result, row, column in zip(images, black, rows, columns, strict=True):
        expected = image.clone()
        expected[:, max(row - 2, 0) : row + 2, max(column - 2, 0) : column + 2] = 0
        assert torch.equal(result, expected)


def test_rotation_by_zero_degrees_is_the_identity(images):
    assert torch.equal(rotation(0.0)(images, seeded()), images)


def test_rotation_takes_the_nearest_pixel(images):
    turned = rotation(90.0)(images, seeded())
    angles = (torch.rand(7, generator=seeded()).double() * 2 - 1) * math.radians(90)
    compared = 0
    for image, result, angle in zip(images, turned, angles.tolist(), strict=True):
        for i in range(6):
            for j in range(9):
                across, down = j - 4.0, i - 2.5
                row = 2.5 + math.sin(angle) * across + math.cos(angle) * down
                column = 4.0 + math.cos(angle) * across - math.sin(angle) * down
                if min(abs(v % 1 - 0.5) for v in (row, column)) < 1e-3:
                    continue  # halfway between two pixels either is right
                inside = -0.5 < row < 5.5 and -0.5 < column < 8.5
                expected = (
                    image[:, round(row), round(column)]
                    if inside
                    else torch.zeros(3, dtype=image.dtype)
                )
                assert torch.equal(result[:, i, j], expected)
                compared += 1
    assert compared > 350


@pytest.mark.parametrize("name", sorted(AUGMENTS))
def test_every_augmentation_keeps_shape_dtype_and_input_and_is_deterministic(images, name):
    before, augment = images.clone(), build([Spec(name)])
    first, again, other = (
        augment(images, seeded(1)),
        augment(images, seeded(1)),
        augment(images, seeded(2)),
    )
    assert (first.shape, first.dtype) == (images.shape, images.dtype)
    assert torch.equal(images, before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_they_are_applied_in_the_order_given(images):
    specs = [Spec("pad-crop", {"padding": 2}), Spec("flip")]
    generator = seeded()
    expected = flip()(pad_crop(2)(images, generator), generator)
    assert torch.equal(build(specs)(images, seeded()), expected)
    assert not torch.equal(build(specs[::-1])(images, seeded()), expected)


def test_no_specs_mean_no_augmentation():
    assert build([]) is None


def test_all_problems_are_reported_at_once():
    with pytest.raises(UserError, match="did you mean 'rotation'"):
        build([Spec("rotatoin")])
    with pytest.raises(UserError, match="2 problems"):
        build([Spec("flip", {"chance": 2.0}), Spec("pad-crop", {"padding": -1})])
