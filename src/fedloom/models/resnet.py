"""ResNets by name: the CIFAR family of depth 6n+2 (basic) or 9n+2 (bottleneck), and ResNet-18.

All follow He et al., CVPR 2016; each function says which paper's variant it builds and how it
departs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.models.layers import Groups, InitKind, NormKind, Shape, make_norm
from fedloom.models.residual import BRANCHES, residual_chain

Depth = Annotated[
    int,
    Param(
        "layers: 6n+2 if basic (8, 20, 32, 44, 56, 110), 9n+2 if bottleneck (11, 20, 29, 56)",
        low=8,
        high=1202,
    ),
]
BlockKind = Annotated[
    Literal["basic", "bottleneck"],
    Param("two 3x3 convolutions, or 1x1, 3x3 and 1x1 with four times the width"),
]
Width = Annotated[
    int, Param("channels of the stem and of the first stage; each later stage doubles them", low=1)
]
ShortcutKind = Annotated[
    Literal["pad", "projection"],
    Param("where the shape changes: subsampling with zero channels, or 1x1 convolution and norm"),
]
StemKind = Annotated[
    Literal["cifar", "imagenet"],
    Param("3x3 convolution, or 7x7 of stride 2 and a max-pool of stride 2"),
]


def resnet(
    shape: Shape,
    classes: int,
    depth: Depth = 20,
    block: BlockKind = "basic",
    norm: NormKind = "batch",
    groups: Groups = 2,
    width: Width = 16,
    shortcut: ShortcutKind = "pad",
    init: InitKind = "he",
) -> Chain:
    """A ResNet for small images: three stages of equal depth (He et al. 2016, section 4.2)."""
    period = 3 * BRANCHES[block].convolutions  # layers of one residual block in each stage
    blocks_per_stage, rest = divmod(depth - 2, period)
    if rest or not blocks_per_stage:
        nearest = period * max(1, round((depth - 2) / period)) + 2
        raise UserError(
            f"model 'resnet': depth={depth} with block '{block}' must be {period}n + 2; "
            f"the nearest is {nearest}"
        )
    widths = (width, 2 * width, 4 * width)
    return residual_chain(
        shape,
        classes,
        (blocks_per_stage,) * 3,
        widths,
        make_norm(norm, groups),
        block=block,
        shortcut=shortcut,
        init=init,
    )


def resnet8(
    shape: Shape, classes: int, norm: NormKind = "group", groups: Groups = 2, width: Width = 16
) -> Chain:
    """ResNet-8, small enough for experiments on a few cores: projection shortcuts, group norm.

    78,042 parameters on colour images of 10 classes.
    """
    return resnet(shape, classes, 8, "basic", norm, groups, width, "projection", "torch")


def resnet20(
    shape: Shape, classes: int, norm: NormKind = "batch", groups: Groups = 2, width: Width = 16
) -> Chain:
    """ResNet-20 of He et al. 2016, parameter-free shortcuts: 269,722 parameters at 10 classes."""
    return resnet(shape, classes, 20, "basic", norm, groups, width, "pad", "he")


def resnet32(
    shape: Shape, classes: int, norm: NormKind = "batch", groups: Groups = 2, width: Width = 16
) -> Chain:
    """ResNet-32 of FedAFA, with parameter-free shortcuts: 464,154 parameters at 10 classes.

    Linear layers are initialised like convolutions, by He normal.
    """
    return resnet(shape, classes, 32, "basic", norm, groups, width, "pad", "he-all")


def resnet56(
    shape: Shape, classes: int, norm: NormKind = "batch", groups: Groups = 2, width: Width = 16
) -> Chain:
    """ResNet-56 of FedAlign: 614,452 parameters at 100 classes.

    Unlike the ResNet-56 of He et al. it has bottleneck blocks and projection shortcuts.
    """
    return resnet(shape, classes, 56, "bottleneck", norm, groups, width, "projection", "he")


def resnet18(
    shape: Shape,
    classes: int,
    stem: StemKind = "cifar",
    norm: NormKind = "group",
    groups: Groups = 2,
    width: Width = 64,
    init: InitKind = "torch",
) -> Chain:
    """ResNet-18, by default FedMLB's: 3x3 stem, group norm, 11,220,132 parameters at 100 classes.

    FedAlign's, which is that of He et al., is stem=imagenet, norm=batch, init=he.
    """
    widths = (width, 2 * width, 4 * width, 8 * width)
    return residual_chain(
        shape, classes, (2, 2, 2, 2), widths, make_norm(norm, groups), stem=stem, init=init
    )
