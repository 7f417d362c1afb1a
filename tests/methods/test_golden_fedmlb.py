"""FedMLB and the distillation baselines against the authors' code and independent derivations."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.optimisers import SGDRule
from fedloom.core.params import Params
from fedloom.core.sampler import everyone
from fedloom.core.solver import Sgd
from fedloom.core.step import Step
from fedloom.losses.distillation import kl, not_true_logits
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedgkd import fedgkd
from fedloom.methods.fedmlb import fedmlb, run_remaining_blocks
from fedloom.methods.fedntd import fedntd
from fedloom.methods.kd import kd
from support.clients import TensorClient
from support.golden import golden
from support.golden_fedmlb import golden_resnet, our_name
from support.simulate import simulate, standalone_job

TINY = golden("fedmlb/fedmlb_tiny")
KD = {
    k.removeprefix("kd/"): v
    for k, v in golden("fedmlb/server_updates").items()
    if k.startswith("kd/")
}
LOSS, WEIGHTS = 1e-12, 1e-11
TEMPERATURES = [0.75, 1.0, 1.5, 2.0, 5.0]


def step_of(local: Chain) -> Step:
    """The golden batch at the golden local weights; the golden global weights were received."""
    job = standalone_job(
        lambda: golden_resnet(TINY, "global"), dict(golden_resnet(TINY, "global").state_dict())
    )
    return Step(TINY["x"], TINY["y"], local, job, dict(local.named_parameters()), Key.root(0), 1)


def value(method: Method, local: Chain | None = None) -> Tensor:
    return method.phases[0].total(step_of(local or golden_resnet(TINY, "local")))


def near(got: Tensor, expected: Tensor, atol: float = LOSS) -> None:
    torch.testing.assert_close(got.detach(), expected, rtol=0, atol=atol)


def test_features() -> None:
    """The authors' fifth features are after the pooling, which here belongs to the head."""
    local = golden_resnet(TINY, "local")
    taps = list(local.taps(TINY["x"]).values())
    features = [*taps[:4], local.get_submodule("head.pool")(taps[4])]
    for number, feature in enumerate(features):
        near(feature.sum(), TINY[f"feat{number}_sum"], WEIGHTS)


@pytest.mark.parametrize("t", TEMPERATURES)
def test_losses(t: float) -> None:
    known = {k: TINY[f"loss/T{t:g}/{k}"] for k in ("ce_main", "ce_hybrid", "kl_hybrid", "total")}
    near(value(fedavg()), known["ce_main"])
    near(value(fedmlb(1, 0, t)) - known["ce_main"], known["ce_hybrid"])
    near(value(fedmlb(0, 1, t)) - known["ce_main"], known["kl_hybrid"])
    near(value(fedmlb(1, 1, t)), known["total"])


@pytest.mark.parametrize("level", range(5))
def test_one_level_with_the_authors_divisor(level: int) -> None:
    one = {"pathways": str(level + 1), "divisor": "all"}
    ce = value(fedavg())
    near(value(fedmlb(1, 0, **one)) - ce, TINY[f"loss/level{level}/ce_official_div5"])
    near(value(fedmlb(0, 1, **one)) - ce, TINY[f"loss/level{level}/kl_official_div5"])
    near(
        value(fedmlb(0, 1, pathways=str(level + 1))) - ce,
        5 * TINY[f"loss/level{level}/kl_official_div5"],
    )


def gradients(method: Method) -> Params:
    local = golden_resnet(TINY, "local")
    names = [n for n, _ in local.named_parameters()]
    return dict(
        zip(names, torch.autograd.grad(value(method, local), list(local.parameters())), strict=True)
    )


def known_gradients(which: str) -> Params:
    return {
        our_name(k.removeprefix(f"{which}/")): v
        for k, v in TINY.items()
        if k.startswith(f"{which}/")
    }


def test_gradients() -> None:
    main, whole = known_gradients("grad_ce_main"), gradients(fedmlb())
    parts = {
        "grad_ce_hybrid": fedmlb(1, 0),
        "grad_kl_hybrid": fedmlb(0, 1),
        "grad_kl_T2": fedmlb(0, 1, 2.0),
    }
    for name, expected in known_gradients("grad_total").items():
        near(whole[name], expected, WEIGHTS)
    for which, method in parts.items():
        found = gradients(method)
        for name, expected in known_gradients(which).items():
            near(found[name] - main[name], expected, WEIGHTS)
    norm = torch.cat([g.flatten() for g in whole.values()]).norm()
    near(norm, TINY["grad_total_norm"], WEIGHTS)


@pytest.mark.parametrize(
    ("which", "method", "clip"),
    [
        ("train3_clip10", fedmlb(), 10.0),
        ("train3_clip0.5", fedmlb(), 0.5),
        ("fedavg3", fedavg(), 10.0),
    ],
)
def test_three_clipped_steps(which: str, method: Method, clip: float) -> None:
    solver = Sgd(lr=0.1, batch=6, epochs=3, clip=clip, rule=SGDRule(weight_decay=1e-3))
    client = TensorClient(TINY["x"], TINY["y"])
    result = simulate(
        method,
        1,
        build=lambda: golden_resnet(TINY, "global"),
        clients=[client],
        sampler=everyone(),
        solver=solver,
    )
    known = known_gradients(which)
    near(torch.tensor(result.reports[0].loss, dtype=torch.float64), known.pop("mean_loss"))
    for name, expected in known.items():
        near(result.state.params[name], expected, WEIGHTS)


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0])
def test_at_the_received_weights_the_divergence_is_zero(weight: float) -> None:
    same = golden_resnet(TINY, "global")
    ce = value(fedavg(), same).item()
    assert value(fedmlb(0, weight), same).item() == ce
    assert value(fedmlb(weight, 1), same).item() == pytest.approx((1 + weight) * ce, abs=1e-15)


def said(method: Method) -> Tensor:
    """The method's loss for the golden student, with the golden teacher received, after round 0."""
    build = partial(nn.Linear, *KD["student"].shape, bias=False, dtype=torch.float64)
    chain = Chain({"said": build()})
    chain.load_state_dict({"said.weight": KD["student"].T})
    job = replace(
        standalone_job(lambda: Chain({"said": build()}), {"said.weight": KD["teacher"].T}), round=1
    )
    every = torch.eye(len(KD["y"]), dtype=torch.float64)
    return method.phases[0].total(
        Step(every, KD["y"], chain, job, dict(chain.named_parameters()), Key.root(0), 1)
    )


TAUGHT = {
    "ce": fedavg(),
    "flower_gamma0.2": kd(0.2),
    "gkd_official_coef0.2": fedgkd(0.2, history=1),
    "ntd_fedacg_0.7_0.3": fedntd(0.3, form="first"),
    "ntd_official_beta1_tau1": fedntd(),
}


@pytest.mark.parametrize("which", TAUGHT)
def test_losses_of_the_baselines(which: str) -> None:
    near(said(TAUGHT[which]), KD[which])


def test_divergences() -> None:
    student, teacher, y = KD["student"], KD["teacher"], KD["y"]
    near(kl(teacher, student), KD["kl_T1"])
    near(kl(teacher, student, 2.0), KD["kl_T2_no_T2factor"])
    near(kl(not_true_logits(teacher, y), not_true_logits(student, y)), KD["ntd_kl_T1"])
    near(
        9 * kl(not_true_logits(teacher, y), not_true_logits(student, y), 3.0),
        KD["ntd_kl_T3_times9"],
    )


@pytest.mark.parametrize(
    "cuts", [["stem", "layer1", "layer2", "layer3", "layer4"], ["layer2"], ["stem", "layer3"]]
)
def test_pathways_run_together_equal_pathways_run_one_by_one(cuts: list[str]) -> None:
    frozen, taps = golden_resnet(TINY, "global"), golden_resnet(TINY, "local").taps(TINY["x"])
    features = {cut: taps[cut].detach().requires_grad_() for cut in cuts}
    both = [run_remaining_blocks(frozen, features, together) for together in (True, False)]
    near(both[0], both[1].detach())
    for one, other in zip(
        *(torch.autograd.grad(z.square().sum(), list(features.values())) for z in both), strict=True
    ):
        near(one, other)


def test_every_frozen_block_is_called_once() -> None:
    """Five calls of frozen blocks instead of fifteen."""
    frozen, taps, calls = (
        golden_resnet(TINY, "global"),
        golden_resnet(TINY, "local").taps(TINY["x"]),
        [],
    )
    for name in frozen.names:
        frozen.block(name).register_forward_hook(lambda *seen, name=name: calls.append(name))
    run_remaining_blocks(frozen, {cut: taps[cut] for cut in frozen.names[:-1]}, together=True)
    assert calls == ["layer1", "layer2", "layer3", "layer4", "head"]
