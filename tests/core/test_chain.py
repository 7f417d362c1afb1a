"""A chain of blocks: any consecutive part can be run alone."""

import itertools

import pytest
import torch
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.select import (
    blocks,
    everything,
    has_batch_statistics,
    norms,
    nothing,
    of_type,
)
from support.models import FEATURES, NORMS, bare, nested, noisy

CUTS = (None, "stem", "body", "head")
x = torch.randn(4, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(CUTS, 2)))
def test_two_consecutive_parts_give_the_whole(first: str | None, second: str) -> None:
    chain = nested().eval()
    into = chain.run(x, until=first) if first else x
    assert torch.equal(
        chain.run(chain.run(into, after=first, until=second), after=second), chain(x)
    )


def test_taps_are_the_outputs_of_the_blocks() -> None:
    chain = nested().eval()
    taps = chain.taps(x)
    assert list(taps) == list(chain.names) == ["stem", "body", "head"]
    for name, tap in taps.items():
        assert torch.equal(tap, chain.run(x, until=name))
    assert torch.equal(taps["head"], chain(x))


def test_taps_are_one_pass() -> None:
    chain = nested()
    chain.taps(x)
    assert int(chain.get_buffer("body.0.unit.1.num_batches_tracked")) == 1


def test_an_empty_part_is_the_identity() -> None:
    assert torch.equal(nested().run(x, after="head"), x)


def test_blocks_are_found_by_name() -> None:
    chain = nested()
    assert chain.block("head") is chain.get_submodule("head")
    assert chain.between("stem", None) == ("body", "head")
    for ask in (
        lambda: chain.block("haed"),
        lambda: chain.run(x, until="haed"),
        lambda: chain.run(x, after="haed"),
    ):
        with pytest.raises(UserError, match="no block 'haed'; did you mean 'head'"):
            ask()


@pytest.mark.parametrize("name", ["", "names", "forward", "training", "a.b"])
def test_invalid_block_names(name: str) -> None:
    with pytest.raises(UserError, match="block name"):
        Chain({name: nn.Linear(1, 1)})


def test_a_chain_needs_a_block() -> None:
    with pytest.raises(UserError, match="at least one block"):
        Chain({})


def test_norms_are_found_at_any_depth() -> None:
    assert norms(nested()) == NORMS
    assert "body.0.downsample.1.running_var" in NORMS
    assert norms(bare()) == frozenset()


@pytest.mark.parametrize(
    "norm",
    [
        nn.GroupNorm(1, 4),
        nn.LayerNorm(4),
        nn.RMSNorm(4),
        nn.InstanceNorm1d(4, affine=True),
        nn.BatchNorm2d(4),
    ],
)
def test_every_kind_of_norm_is_a_norm(norm: nn.Module) -> None:
    chain = Chain({"only": nn.Sequential(nn.Sequential(nn.Linear(4, 4), norm))})
    assert norms(chain) == {f"only.0.1.{n}" for n in norm.state_dict()}


def test_a_block_that_is_a_norm_itself() -> None:
    assert norms(Chain({"norm": nn.BatchNorm1d(2), "head": nn.Linear(2, 2)})) == {
        f"norm.{n}"
        for n in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }


def test_selectors_by_block() -> None:
    chain = nested()
    names = frozenset(chain.state_dict())
    head = frozenset({"head.weight", "head.bias"})
    assert everything(chain) == names
    assert nothing(chain) == frozenset()
    assert blocks("head")(chain) == blocks(after="body")(chain) == head
    assert blocks(until="body")(chain) == names - head
    assert blocks(after="stem", until="body")(chain) == {n for n in names if n.startswith("body.")}
    assert of_type(nn.Linear)(chain) == {n for n in names - NORMS}
    with pytest.raises(UserError, match="no block 'tail'"):
        blocks("tail")(chain)


def test_which_models_have_batch_statistics() -> None:
    assert has_batch_statistics(nested())
    assert not has_batch_statistics(bare())
    assert not has_batch_statistics(noisy())
    assert not has_batch_statistics(Chain({"only": nn.GroupNorm(1, 2)}))
