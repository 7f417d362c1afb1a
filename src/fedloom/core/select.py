"""Selectors choose tensors of a model by block or layer type, never by position or substring."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedloom.core.chain import Chain

Selector = Callable[[Chain], frozenset[str]]

BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
NORMS = (
    *BATCH_NORMS,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.modules.instancenorm._InstanceNorm,
)


def everything(chain: Chain) -> frozenset[str]:
    """All parameters and buffers."""
    return frozenset(chain.state_dict())


def nothing(chain: Chain) -> frozenset[str]:
    """No tensors."""
    return frozenset()


def of_type(*types: type[nn.Module]) -> Selector:
    """Every tensor of a layer of these types, at any depth; for Method(private=...)."""

    def choose(chain: Chain) -> frozenset[str]:
        return frozenset(
            f"{layer}.{name}"
            for layer, module in chain.layers()
            if isinstance(module, types)
            for name in module.state_dict()
        )

    return choose


def norms(chain: Chain) -> frozenset[str]:
    """Every tensor of a normalisation layer: scale, shift and statistics."""
    return of_type(*NORMS)(chain)


def decayed(chain: Chain) -> frozenset[str]:
    """The parameters that weight decay is usually meant for: neither of a norm, nor a bias.

    A bias is told by its single dimension, whatever its layer calls it.
    """
    of_norms = norms(chain)
    return frozenset(
        n
        for n, p in chain.named_parameters(remove_duplicate=False)
        if p.dim() > 1 and n not in of_norms
    )


def blocks(*names: str, after: str | None = None, until: str | None = None) -> Selector:
    """Every tensor of the named blocks, or of the blocks after `after` up to `until`."""

    def choose(chain: Chain) -> frozenset[str]:
        chosen = tuple(names) or chain.between(after, until)
        return frozenset(f"{b}.{n}" for b in chosen for n in chain.block(b).state_dict())

    return choose


def head(count: int = 1) -> Selector:
    """Every tensor of the last `count` blocks, which turn features into class scores."""
    return lambda chain: blocks(*chain.names[-count:])(chain)


def representation(count: int = 1) -> Selector:
    """Every tensor before the last `count` blocks, which compute the features."""
    return lambda chain: (
        blocks(*chain.names[:-count])(chain) if len(chain.names) > count else frozenset()
    )


def has_batch_statistics(chain: Chain) -> bool:
    """Whether training normalises over the batch, so that a batch needs at least two samples."""
    return any(isinstance(m, BATCH_NORMS) for m in chain.modules())
