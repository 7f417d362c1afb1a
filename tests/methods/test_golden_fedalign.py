"""FedAlign and GradAug against numbers of FedAlign's authors' code, in float64."""

import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.optimisers import SGDRule
from fedloom.core.rule import Gradient
from fedloom.core.sampler import everyone
from fedloom.core.solver import Sgd
from fedloom.core.step import Loss, Step
from fedloom.losses.lipschitz import spectral_norm, transmitting_matrix
from fedloom.methods.fedalign import fedalign, lipschitz_constants
from fedloom.methods.gradaug import subnetwork_loss
from fedloom.models.layers import make_norm
from fedloom.models.residual import residual_chain
from fedloom.models.subnetwork import SubNetworks
from fedloom.models.width_tracing import slimmed_channels
from support.clients import TensorClient
from support.golden import golden
from support.golden_problems import fixed_order
from support.golden_weights import with_golden_weights
from support.simulate import SimulationResult, simulate, standalone_job

LIPSCHITZ = golden("fedalign/a_lipschitz")
STEPS = golden("fedalign/b_fedalign_3steps")
CLIPPED = golden("fedalign/b2_fedalign_clipped_step")
AUGMENTED = golden("fedalign/e_gradaug")


def close(got: Tensor, expected: Tensor, tolerance: float) -> None:
    """Relative to the largest expected magnitude."""
    scale = max(1e-30, float(expected.abs().max()))
    torch.testing.assert_close(got / scale, expected / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("tag", ["relu", "signed", "samesize", "oddpool"])
def test_transmitting_matrix_and_its_spectral_norm(tag: str) -> None:
    before, behind = (LIPSCHITZ[f"{tag}_{f}"].double() for f in ("f1", "f2"))
    matrices = transmitting_matrix(before, behind)
    close(matrices, LIPSCHITZ[f"{tag}_T"], 1e-12)
    for iterations in (1, 10, 2000):
        close(spectral_norm(matrices, iterations), LIPSCHITZ[f"{tag}_K_{iterations}iter"], 1e-12)
    close(spectral_norm(matrices, 2000), LIPSCHITZ[f"{tag}_K_svd"], 1e-12)


def net(*blocks: int) -> Chain:
    chain = residual_chain(
        (3, 32, 32), 10, blocks, (16, 32, 64), make_norm("batch", 2), block="bottleneck"
    )
    return with_golden_weights(chain.double())


def our_name(official: str) -> str:
    """Our name of a tensor, from FedAlign's name."""
    name = re.sub(r"^(conv1|bn1)\.", lambda m: f"stem.{m[1][:-1]}.", official.replace(".bn.", "."))
    name = re.sub(r"^(layer\d\.\d)\.(conv|bn)", r"\1.body.\2", name)
    name = name.replace("downsample.0.", "shortcut.conv.").replace(
        "downsample.1.", "shortcut.norm."
    )
    return name.replace("fc.", "head.fc.").replace("bn", "norm")


def known(numbers: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The golden tensors under a prefix, by our names."""
    found = {
        our_name(n.removeprefix(prefix)): t for n, t in numbers.items() if n.startswith(prefix)
    }
    assert found
    return found


@dataclass
class Watch:
    """A cross-entropy loss that records the alignment term and its gradients at every step."""

    term: Loss
    notes: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, step: Step) -> Tensor:
        weights, names, extra = list(step.params.values()), list(step.params), self.term(step)
        narrow, full = lipschitz_constants(step, SubNetworks(), 0.25)
        total = torch.autograd.grad(step.ce + extra, weights, retain_graph=True)
        lip = torch.autograd.grad(extra, weights, retain_graph=True, materialize_grads=True)
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in total]))
        note = {
            "ce": step.ce,
            "lip_raw": (narrow - full).square().mean(),
            "K_S": narrow,
            "K_F": full,
            "grad_norm_before_clip": norm,
        }
        grads = {
            "total": dict(zip(names, total, strict=True)),
            "lip": dict(zip(names, lip, strict=True)),
        }
        self.notes.append(
            {n: t.detach() for n, t in note.items()} | grads | {"logits": step.logits.detach()}
        )
        return step.ce


@dataclass(frozen=True)
class Seen(SGDRule):
    """The authors' optimiser, recording the gradients it receives."""

    seen: list[list[Tensor]] = field(default_factory=list)

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: Any) -> Any:
        self.seen.append(gradient(0))
        return super().step(weights, lambda n: self.seen[-1], lr, state)


def trained(method: Method, steps: int, lr: Tensor, **phase: Any) -> tuple[SimulationResult, Seen]:
    """Run the solver on one client's golden batches."""
    x, y = STEPS["x"][:steps].flatten(0, 1), STEPS["y"][:steps].flatten()
    method = replace(
        method, phases=(replace(method.phases[0], order=fixed_order(len(y)), **phase),)
    )
    rule = Seen(momentum=0.9, nesterov=True, weight_decay=1e-4)
    solver = Sgd(lr=float(lr), batch=8, drop_last=True, rule=rule)
    build = lambda: net(1, 1, 2)  # noqa: E731
    return simulate(
        method, 1, build=build, clients=[TensorClient(x, y)], sampler=everyone(), solver=solver
    ), rule


def test_three_steps_of_fedalign() -> None:
    method = fedalign(float(STEPS["mu"]))
    watch = Watch(method.phases[0].terms[0])
    result, _ = trained(method, 3, STEPS["lr"], loss=watch)
    for name in ("ce", "lip_raw", "K_S", "K_F", "grad_norm_before_clip"):
        close(torch.stack([note[name] for note in watch.notes]), STEPS[name], 1e-9)
    close(watch.notes[0]["logits"], STEPS["logits_step0"], 1e-9)
    for kind, prefix in (("total", "grad_step0/"), ("lip", "grad_lip_step0/")):
        for name, expected in known(STEPS, prefix).items():
            close(watch.notes[0][kind][name], expected, 1e-9)
    params = result.state.params
    for name, expected in (known(STEPS, "param_after/") | known(STEPS, "buffer_after/")).items():
        close(params[name], expected, 1e-9)
    weights = [params[n] for n, _ in net(1, 1, 2).named_parameters()]
    close(sum(w.sum() for w in weights), STEPS["param_after_sum_all"], 1e-9)
    close(sum(w.square().sum() for w in weights), STEPS["param_after_sumsq_all"], 1e-9)


def test_a_step_whose_gradient_is_clipped() -> None:
    method = fedalign(float(CLIPPED["mu"]))
    watch = Watch(method.phases[0].terms[0])
    result, rule = trained(method, 1, CLIPPED["lr"], loss=watch)
    close(watch.notes[0]["grad_norm_before_clip"], CLIPPED["grad_norm_before_clip"][0], 1e-9)
    given = dict(zip([n for n, _ in net(1, 1, 2).named_parameters()], rule.seen[0], strict=True))
    for name, expected in known(CLIPPED, "grad_step0/").items():
        close(given[name], expected, 1e-9)
    for name, expected in known(CLIPPED, "grad_lip_step0/").items():
        close(watch.notes[0]["lip"][name], expected, 1e-9)
    for name, expected in known(CLIPPED, "param_after/").items():
        close(result.state.params[name], expected, 1e-9)


def test_channels_kept_at_a_width() -> None:
    for width, row in zip(
        AUGMENTED["divisible_widths"].tolist(), AUGMENTED["divisible_table"].tolist(), strict=True
    ):
        assert [
            slimmed_channels(count, width) for count in AUGMENTED["divisible_channels"].tolist()
        ] == row


def test_a_batch_of_gradaug() -> None:
    chain, narrow, x = net(1, 1, 1).train(), SubNetworks(), AUGMENTED["x"]
    weights = dict(chain.named_parameters())
    step = Step(
        x, AUGMENTED["y"], chain, standalone_job(lambda: chain, {}), weights, Key.root(0), 1
    )
    widths, sides = (AUGMENTED[f"{w}_in_order"].tolist() for w in ("widths", "resolutions"))
    lessons = torch.stack(
        [
            subnetwork_loss(step, narrow, width, side / 32)
            for width, side in zip(widths, sides, strict=True)
        ]
    )
    close(step.ce, AUGMENTED["ce"], 1e-10)
    close(step.logits, AUGMENTED["logits_full"], 1e-10)
    close(lessons, AUGMENTED["kl_unweighted"], 1e-10)
    for width, side, expected in zip(widths, sides, AUGMENTED["logits_sub"], strict=True):
        small = F.interpolate(x, (side, side), mode="bilinear", align_corners=True)
        close(narrow(chain, x, width).run(small), expected, 1e-10)
    places = {
        "grad_conv1": "stem.conv.weight",
        "grad_fc": "head.fc.weight",
        "grad_l3bn2": "layer3.0.body.norm2.weight",
    }
    total = step.ce + float(AUGMENTED["mu"]) * lessons.sum()
    grads = torch.autograd.grad(total, [weights[n] for n in places.values()])
    for name, grad in zip(places, grads, strict=True):
        close(grad, AUGMENTED[name], 1e-10)
    close(
        chain.get_buffer("layer3.0.body.norm3.running_mean"), AUGMENTED["running_mean_l3bn3"], 1e-10
    )
