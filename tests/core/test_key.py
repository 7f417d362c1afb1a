"""The key tree: its laws, and digests that must never change, since published seeds use them."""

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedloom.core.key import Key

labels = st.lists(st.one_of(st.integers(), st.text(max_size=8)), max_size=4)
seeds = st.integers(0, 2**40)


@given(seeds, labels, labels)
def test_a_path_can_be_folded_in_pieces(seed: int, first: list, second: list) -> None:
    key = Key.root(seed)
    assert key.fold(*first, *second) == key.fold(*first).fold(*second)


@given(seeds, labels, labels)
def test_different_paths_are_different_nodes(seed: int, first: list, second: list) -> None:
    if [(type(a), a) for a in first] != [(type(b), b) for b in second]:
        assert Key.root(seed).fold(*first) != Key.root(seed).fold(*second)


@given(seeds, seeds, labels)
def test_different_seeds_share_no_node(one: int, other: int, path: list) -> None:
    assert (Key.root(one).fold(*path) == Key.root(other).fold(*path)) == (one == other)


@given(seeds, labels)
def test_draws_depend_only_on_the_path(seed: int, path: list) -> None:
    key = Key.root(seed).fold(*path)
    first = torch.rand(3, generator=key.generator())
    torch.rand(5)  # unrelated draws in between
    assert torch.equal(first, torch.rand(3, generator=key.generator()))
    assert 0 <= key.seed < 2**63


def test_a_number_and_its_text_are_different_labels() -> None:
    assert Key.root(0).fold(3) != Key.root(0).fold("3")
    assert Key.root(0).fold("ab") != Key.root(0).fold("a", "b")


def test_the_digest_is_a_chain_of_sha256() -> None:
    """Computed with the standard library alone."""
    digest = hashlib.sha256(b"fedloom:7").digest()
    for label in (b"sround", b"i3", b"sclient", b"i5"):
        digest = hashlib.sha256(digest + label).digest()
    assert Key.root(7).fold("round", 3, "client", 5).digest == digest


@pytest.mark.parametrize(
    ("key", "hexadecimal", "seed"),
    [
        (
            Key.root(0),
            "c63fbe593fd547e47ad2533ca8ece53a71f6ddfc8390c56ae47fffab4d8f1d2a",
            7142672916787405810,
        ),
        (
            Key.root(7).fold("round", 3, "client", 5),
            "7cad6c85861afe51df49e5a7ae6ffedd4eadd16736a1ec6bac84cb7fadf914d4",
            4491978076205186856,
        ),
    ],
)
def test_frozen_nodes(key: Key, hexadecimal: str, seed: int) -> None:
    assert key.digest.hex() == hexadecimal
    assert key.seed == seed


def test_frozen_draws() -> None:
    key = Key.root(7).fold("round", 3, "client", 5)
    assert torch.randperm(8, generator=key.generator()).tolist() == [4, 2, 6, 7, 5, 3, 0, 1]
    assert torch.rand(2, generator=key.generator(), dtype=torch.float64).tolist() == [
        0.042745673583939214,
        0.5814933913176167,
    ]
