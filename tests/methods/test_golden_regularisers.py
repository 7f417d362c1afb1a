"""Mixup and stochastic depth against numbers from FedAlign's authors' code."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.compose import join
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec, parse
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from fedloom.losses import mixup as pairs
from fedloom.methods import registry
from fedloom.methods.mixup import mixup
from fedloom.methods.moon import moon
from fedloom.methods.stochdepth import stochdepth, survival_probabilities
from fedloom.models.registry import build
from fedloom.models.stochastic_depth import StochasticDepthBlock, residual_block_names
from support.golden import golden
from support.golden_weights import with_golden_weights
from support.models import residual, residual_bare
from support.simulate import make_simulation, simulate, standalone_job

MISC = golden("fedalign/f_misc")
DEPTH = golden("fedalign/d_stochdepth")


def off(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest expected magnitude."""
    return float((found.detach() - expected).abs().max() / expected.abs().max())


def mixed() -> tuple[Tensor, Tensor]:
    return pairs.mixed_within_batch(
        MISC["mix_x"], MISC["mix_y"], MISC["mix_perm"], float(MISC["mix_lam"]), len(MISC["mix_b"])
    )


def test_mixed_samples() -> None:
    assert off(mixed()[0], MISC["mix_xm"]) < 1e-12


def test_the_loss_of_mixed_labels_is_the_weighted_loss_of_both() -> None:
    x, rows = mixed()
    logits, share = F.linear(x, MISC["mix_W"], MISC["mix_b"]), MISC["mix_lam"]
    assert off(F.cross_entropy(logits, rows), MISC["mix_loss"]) < 1e-12
    both = [F.cross_entropy(logits, y) for y in (MISC["mix_y"], MISC["mix_y"][MISC["mix_perm"]])]
    assert off(F.cross_entropy(logits, rows), share * both[0] + (1 - share) * both[1]) < 1e-12


def test_mixup_draws_one_share_per_batch_from_its_key() -> None:
    job, mix = standalone_job(residual, {}), mixup(0.8).phases[0].mix
    object.__setattr__(job, "classes", 40)
    x, y = torch.eye(40, dtype=torch.float64), torch.arange(40)
    (first, rows), (again, _), (other, _) = (mix(x, y, job, Key.root(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first, rows)  # samples and labels are mixed alike
    assert rows.dtype == x.dtype
    torch.testing.assert_close(rows.sum(1), torch.ones(40, dtype=torch.float64))
    assert len(rows.diagonal()[rows.diagonal() < 1].unique()) == 1


def test_text_cannot_be_mixed() -> None:
    with pytest.raises(
        UserError, match=r"^method 'mixup': needs a model that takes numbers, not text, but "
    ):
        mixup().check(build(Spec("lstm"), (5,), 7, Key.root(0)))


def test_localmix_is_an_alias_of_mixup() -> None:
    assert registry.build(parse("localmix(alpha=0.3)")).name == "mixup"
    assert registry.entry("localmix") == registry.entry("mixup")
    assert "localmix" in registry.entry("mixup").text
    assert "localmix" not in registry.names()
    with pytest.raises(UserError, match="names a method twice"):
        registry.build(parse("localmix+mixup"))


def official(model: str, keep: float) -> list[float]:
    chain = build(Spec(model), (3, 32, 32), 10, Key.root(0), device="meta")
    return survival_probabilities(len(residual_block_names(chain)), keep, "authors")


def test_the_authors_survival_probabilities() -> None:
    for model, keep, name in [
        ("resnet56", 0.9, "r56_rho09"),
        ("resnet56", 0.5, "r56_rho05"),
        ("resnet18", 0.9, "r18_rho09"),
    ]:
        expected = DEPTH[f"keep_prob_{name}"]
        assert off(torch.tensor(official(model, keep), dtype=torch.float64), expected) < 1e-14


def test_the_papers_survival_probabilities() -> None:
    assert survival_probabilities(4, 0.6, "paper") == pytest.approx([0.9, 0.8, 0.7, 0.6])


class FixedGate(nn.Module):
    """A gate with a fixed state."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.kept = kept

    def forward(self) -> bool:
        return self.kept


def golden_net(keep: float) -> Chain:
    plain = build(Spec("resnet56"), (3, 32, 32), 100, Key.root(0), dtype=torch.float64)
    return with_golden_weights(stochdepth(keep).reshaped(plain, Key.root(0)))


def test_evaluation_scales_the_branches() -> None:
    assert off(golden_net(0.9).eval()(DEPTH["x"]), DEPTH["logits_eval"]) < 1e-10


def test_training_drops_branches() -> None:
    chain = golden_net(0.9).train()
    blocks = [chain.get_submodule(name) for name in residual_block_names(chain)]
    assert len(blocks) == len(DEPTH["mask"]) == 18
    for block, kept in zip(blocks[1:], DEPTH["mask"][1:].tolist(), strict=True):
        block.gate = FixedGate(bool(kept))
    assert bool(DEPTH["mask"][0]) and not isinstance(blocks[0], StochasticDepthBlock)
    logits = chain(DEPTH["x"])
    assert off(logits, DEPTH["logits_train_mask"]) < 1e-7
    counts = [int(block.get_submodule("body.norm1").num_batches_tracked) for block in blocks]
    assert counts == DEPTH["mask"].tolist()
    logits.sum().backward()  # would fail if the last operation overwrote its input
    assert [block.get_submodule("body.conv1").weight.grad is None for block in blocks] == [
        not k for k in DEPTH["mask"].tolist()
    ]


def test_keeping_every_branch_is_the_plain_network() -> None:
    chain = golden_net(1.0)
    assert off(chain.eval()(DEPTH["x"]), DEPTH["logits_eval_plain_resnet56"]) < 1e-10
    assert off(chain.train()(DEPTH["x"]), DEPTH["logits_train_plain_resnet56"]) < 1e-7


def test_how_often_a_branch_is_kept() -> None:
    """Within four standard deviations of 2,000 fixed draws."""
    chain = stochdepth(0.4).reshaped(residual_bare(), Key.root(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for name, chance in zip(residual_block_names(chain)[1:], (0.7, 0.4), strict=True):
            gate = chain.get_submodule(name).gate
            kept = sum(gate() for _ in range(2000)) / 2000
            assert kept == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 2000) ** 0.5)


def test_a_model_without_branches_is_rejected() -> None:
    with pytest.raises(
        UserError,
        match=r"^method 'stochdepth': needs at least two residual branches, as .*, but ",
    ):
        stochdepth().reshaped(build(Spec("lenet5"), (1, 28, 28), 10, Key.root(0)), Key.root(0))


def test_the_vectorised_engine_rejects_random_layers() -> None:
    federation = make_simulation(stochdepth(0.5), build=residual_bare).federation
    reason = Vectorised(federation, InProcess(federation)).why_not
    assert reason == "the model has dropout, and vectorised clients draw nothing in a forward pass"


def test_teachers_of_a_combined_method_do_not_change_the_draws() -> None:
    """With almost no weight, moon+stochdepth drops the branches that stochdepth alone drops."""
    almost, plain = (
        simulate(join([moon(mu, projection=4), stochdepth(0.4)]), 3, build=residual).state.params
        for mu in (1e-13, 0.0)
    )
    for name, tensor in plain.items():
        torch.testing.assert_close(almost[name], tensor, rtol=0, atol=1e-10)
