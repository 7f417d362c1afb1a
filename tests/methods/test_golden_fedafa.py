"""FedAFA and M2m against numbers from FedAFA's paper and its authors' code.

Generated features, pairs of classes, the loss and its steps.
"""

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.optimisers import SGDRule
from fedloom.core.rule import Rule
from fedloom.core.solver import Objective, Sgd, shuffled
from fedloom.losses import feature_generation
from fedloom.losses.adversarial import (
    SourceWeights,
    confidence,
    draw_pairs_on_cpu,
    normalised_descent,
    perturbed,
    target_probabilities,
)
from fedloom.losses.feature_generation import Generation, afa_loss
from fedloom.methods.fedafa import SOURCE_WEIGHTS
from fedloom.methods.finetune import finetuning_sgd
from fedloom.methods.m2m import m2m_source_weights
from support.clients import TensorClient
from support.golden import golden
from support.simulate import standalone_job

FEATURES, PAIRS, LOSS = (
    golden(f"fedafa/{name}") for name in ("b_feature_perturbation", "c_class_pairs", "d_loss_afa")
)
ATOL = 1e-12


def near(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got.detach(), expected, rtol=0, atol=ATOL)


def linear(weight: Tensor, bias: Tensor) -> Chain:
    """The features unchanged, flattened, and a linear layer."""
    chain = Chain(
        {
            "front": nn.Identity(),
            "head": nn.Sequential(nn.Flatten(), nn.Linear(*reversed(weight.shape))),
        }
    ).double()
    chain.load_state_dict({"head.1.weight": weight, "head.1.bias": bias})
    return chain


def gen_model() -> Chain:
    return linear(FEATURES["W"], FEATURES["b"]).requires_grad_(False)


def test_the_noise() -> None:
    h, draws, centre = (FEATURES[n] for n in ("feat", "uniform", "noise_shift_r"))
    near(perturbed(h, draws, float(centre), 1.0) - h, FEATURES["noise"])


@pytest.mark.parametrize("times", [1, 10])
@pytest.mark.parametrize(
    ("start", "step", "low", "known"),
    [
        ("feat_start", 0.5, 0.0, "code"),
        ("feat", 0.5, 0.0, "code_nonoise"),
        ("feat", 1.0, -torch.inf, "paper"),
    ],
)
def test_generated_features_after_some_steps(
    start: str, step: float, low: float, known: str, times: int
) -> None:
    model, y = gen_model(), FEATURES["target"]
    h = normalised_descent(
        FEATURES[start], lambda h: nn.functional.cross_entropy(model(h), y), step, times, low
    )
    near(h, FEATURES[f"{known}_after{times}"])
    if (prob := f"prob_{known}_after{times}") in FEATURES:
        near(confidence(model(h), y), FEATURES[prob])


@pytest.mark.parametrize(
    ("generation", "known", "taken"),
    [
        (Generation(0.5, 1, True, True, 0.5), "code_after1", "accept_code_after1_p05"),
        (Generation(0.5, 10, True, True, 0.5), "code_after10", "accept_code_after10_p05"),
        (Generation(0.5, 10, True, True, 0.9), "code_after10", "accept_code_after10_p09"),
        (Generation(0.5, 10, False, True, 0.5), "code_nonoise_after10", None),
        (Generation(1.0, 10, False, False, 0.5), "paper_after10", None),
    ],
)
def test_the_whole_generation(
    generation: Generation, known: str, taken: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_generation, "uniform_like", lambda like, key: FEATURES["uniform"])
    made, kept = generation(gen_model(), "front", FEATURES["feat"], FEATURES["target"], Key.root(0))
    near(made, FEATURES[known])
    if taken is not None:
        assert torch.equal(kept, FEATURES[taken].bool())
        assert generation.accept == 0.5 or 0 < int(kept.sum()) < len(kept)


WEIGHED: dict[str, tuple[SourceWeights, str, str]] = {
    "paper": (SOURCE_WEIGHTS["paper"], "paper_bernoulli", "paper_p_source_given_target"),
    "authors": (SOURCE_WEIGHTS["authors"], "code_weight", "code_p_source_given_target_balanced"),
    "m2m": (m2m_source_weights(0.999), "m2m_accept", "m2m_p_source_given_target_balanced"),
}


def shares(weights: Tensor) -> Tensor:
    """Each row divided by its sum; rows of zeros stay zero."""
    total = weights.sum(1, keepdim=True)
    return weights / torch.where(total > 0, total, 1)


@pytest.mark.parametrize("client", ["c8", "c9"])
@pytest.mark.parametrize(("weigh", "known", "normalised"), WEIGHED.values(), ids=WEIGHED)
def test_pairs_of_classes(client: str, weigh: SourceWeights, known: str, normalised: str) -> None:
    counts = PAIRS[f"{client}_counts"].double()
    there = counts > 0
    found = weigh(counts) * there * there[:, None]
    near(found, PAIRS[f"{client}_{known}"])
    near(shares(found), PAIRS[f"{client}_{normalised}"])
    near(target_probabilities(counts) * there, PAIRS[f"{client}_gen_prob"])


def test_the_authors_code_avoids_the_class_that_the_paper_prefers() -> None:
    """The client of the paper's figure 3b, whose class 1 has 933 samples; its rarest, 6, has 6."""
    counts = PAIRS["c9_counts"].double()
    there = (counts > 0).double()
    of_the_largest = {
        name: float(shares(weigh(counts) * there)[6, 1]) for name, (weigh, _, _) in WEIGHED.items()
    }
    assert of_the_largest == pytest.approx(
        {"paper": 0.995, "authors": 0.002, "m2m": 0.992}, abs=5e-4
    )


@pytest.mark.parametrize("name", ["paper", "authors"])
def test_sources_are_drawn_with_the_golden_probabilities(name: str) -> None:
    """On the golden batch, within five standard deviations.

    So are targets, if they have a source at all.
    """
    y, counts, runs = PAIRS["batch_labels"], PAIRS["c8_counts"].double(), 3000
    weights, seen, chosen = (
        SOURCE_WEIGHTS[name](counts),
        torch.zeros(len(y)),
        torch.zeros(len(y), len(y)),
    )
    for number in range(runs):
        pairs = draw_pairs_on_cpu(y, counts, weights, Key.root(number))
        seen[pairs.targets] += 1
        chosen[pairs.targets, pairs.sources] += 1
    known = "batch_paper_p_select" if name == "paper" else "batch_code_p_select"
    rows, chances = chosen[PAIRS["batch_gen_index"]], PAIRS[known]
    tries = rows.sum(1, keepdim=True)
    assert bool(
        (
            (rows - tries * chances).abs() <= 5 * (tries * chances * (1 - chances)).sqrt() + 1e-9
        ).all()
    )
    likely = PAIRS["c8_gen_prob"][y] * (1 if name == "authors" else counts[y] < counts[y].max())
    assert bool((likely == 0).any()) is (name == "paper")
    assert bool(
        ((seen - runs * likely).abs() <= 5 * (runs * likely * (1 - likely)).sqrt() + 1e-9).all()
    )


def golden_loss(chain: Chain, lam: float) -> Tensor:
    made, own = ((LOSS[f"feat_{which}"], LOSS[f"label_{which}"]) for which in ("gen", "ori"))
    return afa_loss(chain.block("head"), made, own, lam)


def test_the_loss_and_its_gradient() -> None:
    chain = linear(LOSS["V"], LOSS["bias"])
    near(torch.stack([golden_loss(chain, float(lam)) for lam in LOSS["lams"]]), LOSS["L_afa"])
    by_weight, by_bias = torch.autograd.grad(golden_loss(chain, 0.6), list(chain.parameters()))
    near(by_weight, LOSS["gradV_lam06"])
    near(by_bias, LOSS["gradb_lam06"])


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(
    ("rule", "known"),
    [
        (finetuning_sgd(1, 0.005, 64, 0.9, 5e-4).rule, "sgd_nesterov"),
        (SGDRule(0.9, weight_decay=5e-4), "sgd"),
    ],
    ids=["nesterov", "plain"],
)
def test_steps_on_the_loss(rule: Rule, known: str, steps: int) -> None:
    chain = linear(LOSS["V"], LOSS["bias"])
    nobody = TensorClient(torch.zeros(1, 5), torch.zeros(1, dtype=torch.int64))
    job = standalone_job(lambda: chain, dict(chain.state_dict()), nobody)
    Sgd(lr=0.005, steps=steps, rule=rule)(
        chain, Objective(lambda step: golden_loss(chain, 0.6), shuffled), job, Key.root(0)
    )
    near(chain.state_dict()["head.1.weight"], LOSS[f"V_{known}_step{steps}"])
    near(chain.state_dict()["head.1.bias"], LOSS[f"bias_{known}_step{steps}"])
