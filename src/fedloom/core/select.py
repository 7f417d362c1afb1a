"""Which tensors of a model: by block or by layer type, never by counting or by a piece of a name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedloom.core.chain import Chain

Selector = Callable[[Chain], frozenset[str]]

BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
NORMS = (*BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)


def everything(chain: Chain) -> frozenset[str]:
    """All parameters and buffers."""
    return frozenset(chain.state_dict())


def nothing(chain: Chain) -> frozenset[str]:
    """No tensor at all."""
    return frozenset()


def of_type(*types: type[nn.Module]) -> Selector:
    """Every tensor that belongs to a layer of these types, however deeply it is nested."""

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


def blocks(*names: str, after: str | None = None, until: str | None = None) -> Selector:
    """Every tensor of the named blocks, or of the stretch behind `after` up to `until`."""

    def choose(chain: Chain) -> frozenset[str]:
        wanted = tuple(names) or chain.between(after, until)
        return frozenset(f"{b}.{n}" for b in wanted for n in chain.block(b).state_dict())

    return choose


def head(count: int = 1) -> Selector:
    """Every tensor of the last blocks, so many of them: what turns features into classes."""
    return lambda chain: blocks(*chain.names[-count:])(chain)


def representation(count: int = 1) -> Selector:
    """Every tensor in front of the last blocks, so many of them: what makes the features."""
    return lambda chain: (
        blocks(*chain.names[:-count])(chain) if len(chain.names) > count else frozenset()
    )


def has_batch_statistics(chain: Chain) -> bool:
    """Whether training normalises by the batch, so that a batch of one sample has no meaning."""
    return any(isinstance(m, BATCH_NORMS) for m in chain.modules())
