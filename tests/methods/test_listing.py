"""Methods as read from their source agree with the imported modules."""

import importlib

import pytest

from fedloom.core.errors import UserError
from fedloom.methods import listing, registry


@pytest.mark.parametrize("name", listing.names())
def test_what_the_source_says_is_what_the_module_has(name: str) -> None:
    info = listing.describe(name)
    module = importlib.import_module(f"fedloom.methods.{info.module}")
    assert (info.paper, info.link, info.text) == (module.PAPER, module.LINK, module.__doc__)
    assert info.aliases == getattr(module, "ALIASES", ())
    assert info.summary == registry.entry(name).summary != ""


def test_names_and_aliases() -> None:
    assert "fedprox" in listing.names() and "local-training" in listing.names()
    assert not {"registry", "listing", "--init--"} & set(listing.names())
    assert listing.describe("local").name == "local-training"
    assert listing.describe("fedavg-ft").name == "finetune"


def test_an_unknown_name() -> None:
    with pytest.raises(UserError, match=r"no method 'fedporx'; did you mean 'fedprox'\?"):
        listing.describe("fedporx")
