"""Models that cannot be trained are rejected before round 0, with the line to write."""

import random
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedloom as fl
from api.tiny import experiment, sha
from fedloom.experiment import model_memory


class Scores(nn.Module):
    """Class scores, and what `out` makes of them."""

    def __init__(self, out: Callable[[nn.Module, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 4)
        self.out = out

    def forward(self, x: Tensor) -> Any:
        return self.out(self, x, self.fc(x.flatten(1)))


class ModelOutput(OrderedDict):
    """As libraries of transformers return it: a dictionary with attributes."""


class Raises(Exception):
    pass


def fail(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (
            lambda net, x, scores: {"features": x, "scores": scores},
            r"no logits were found in .*, a dict of 'features', 'scores'; .* write in its forward: "
            r"return out\['scores'\]",
        ),
        (lambda net, x, scores: (x, scores), r"\(1, 1, 8, 8\) in a tuple of 2 .* return out\[1\]"),
        (lambda net, x, scores: [scores], r"a list of 1 values; .* return out\[0\]"),
        (
            lambda net, x, scores: ModelOutput(loss=None, hidden=scores),
            r"a ModelOutput of 'loss', 'hidden'; .* return out\['hidden'\]",
        ),
        (lambda net, x, scores: {"x": x}, "a dict of 'x'; .* a dict with the key 'logits', or"),
        (
            lambda net, x, scores: {"logits": None},
            "no logits were found in what was returned, a dict of 'logits'",
        ),
        (lambda net, x, scores: None, "no logits were found in what was returned, None"),
        (lambda net, x, scores: scores.argmax(1), r"returns shape \(1,\) for one sample"),
        (lambda net, x, scores: scores.long(), "numbers of type torch.int64"),
        (lambda net, x, scores: scores.detach(), r"scores without a gradient, .* remove torch.no_"),
        (
            lambda net, x, scores: (x, scores) if net.training else scores,
            r"in training .* in a tuple of 2 values for 2 samples, .* return out\[1\]",
        ),
        (
            lambda net, x, scores: (x.mul_(2), scores)[1],
            r"overwrites the samples that it gets, .* begin its forward with x = x.clone\(\)",
        ),
        (
            lambda net, x, scores: net.fc(x[:, 0].relu_().flatten(1)) if net.training else scores,
            r"in training \(model.train\(\)\) overwrites the samples",
        ),
        (lambda net, x, scores: {}["gone"], "does not accept a sample .*: KeyError: 'gone'"),
        (lambda net, x, scores: fail(Raises("no")), r"does not accept a sample .*: Raises: no"),
        (lambda net, x, scores: fail(MemoryError()), "does not fit in memory"),
        (
            lambda net, x, scores: fail(Raises("late")) if net.training else scores,
            "fails in training: Raises: late",
        ),
    ],
)
def test_a_model_that_does_not_return_scores(out: Any, said: str, desk: Path) -> None:
    with pytest.raises(fl.UserError, match=said):
        experiment(model=lambda shape, classes: Scores(out)).run()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("mlp(width=1000000000)", "1,000,000,070,000,000,004 weights .* 16.0 EB of memory"),
        ("mlp(layers=1000, width=1000000000)", "does not fit in memory|EB of memory"),
        ("mlp(layers=100000)", "layers=100000 must be at most 1000"),
        ("lenet5(padding=1000000)", r"PB of memory in training, but [0-9.]+ .B are available"),
    ],
)
def test_a_model_that_does_not_fit_in_memory_is_not_built(
    model: str, said: str, desk: Path
) -> None:
    began = time.monotonic()
    with pytest.raises(fl.UserError, match=said):
        experiment(model=model).run()
    assert time.monotonic() - began < 10


def test_a_users_model_that_does_not_fit_in_memory(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wide(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10**12), nn.Linear(10**12, classes))

    with pytest.raises(fl.UserError, match=r"model 'wide' does not fit in memory, .* choose a sm"):
        experiment(model=wide).run()
    monkeypatch.setattr(model_memory, "available_memory", lambda: 1000)
    with pytest.raises(fl.UserError, match=r"260 weights and needs about 3.1 kB .* but 1.0 kB"):
        experiment(model=lambda shape, classes: flat()).run()


class SwapAxes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1)


def positions_first(shape: tuple[int, ...], classes: int) -> fl.Chain:
    """Two rows of pixels per image, along the first axis between the blocks."""
    rows = nn.Sequential(nn.Flatten(2), nn.Unflatten(2, (2, 32)), nn.Flatten(1, 2), SwapAxes())
    end = nn.Sequential(SwapAxes(), nn.Flatten(1), nn.Linear(16, classes))
    return fl.Chain({"rows": rows, "body": nn.Linear(32, 8), "head": end})


@pytest.mark.parametrize("method", ["fedmlb", "fedafa", "mixup(at=rows)"])
def test_methods_that_mix_outputs_of_blocks_need_the_samples_first(method: str, desk: Path) -> None:
    said = (
        r"block 'rows' returns shape \(2, 3, 32\) for 3 samples, and method '\w+' needs the samples"
    )
    with pytest.raises(fl.UserError, match=said):
        experiment(method=method, model=positions_first).run()
    experiment(method="fedper", model=positions_first, rounds=1).run()


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


def drawn_by_numpy() -> nn.Module:
    net = flat()
    net[1].weight.data = torch.from_numpy(np.random.randn(4, 64)).float()  # noqa: NPY002
    return net


def drawn_by_python() -> nn.Module:
    net = flat()
    net[1].bias.data *= random.random()
    return net


@pytest.mark.parametrize("model", [drawn_by_numpy, drawn_by_python])
def test_weights_that_are_not_drawn_by_torch(model: Any, desk: Path) -> None:
    with pytest.raises(fl.UserError, match="has different initial weights each time it is built"):
        experiment(model=lambda: model()).run()
    assert experiment(model=model(), rounds=1).run().result is not None  # a module has its weights


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(108, 8), nn.ReLU(),
        nn.Linear(8, 4),
    )  # fmt: skip


class Branching(nn.Module):
    """Its forward pass depends on the data, so it cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        features = self.body(x.flatten(1))
        return self.head(features if features.sum() > 0 else -features)


def test_a_model_that_cannot_be_cut_automatically_is_told_what_to_write(desk: Path) -> None:
    write_chain = r"forward branches.* write it as fedloom\.Chain\("
    with pytest.raises(fl.UserError, match=write_chain) as told:
        experiment(model=Branching(), method="fedper").run()
    assert "fedloom.cut" not in str(told.value)  # which would refuse it
    with pytest.raises(fl.UserError, match=write_chain):
        fl.cut(Branching())
    with pytest.raises(fl.UserError, match="two residual branches, as the resnets") as told:
        experiment(model=small_cnn(), method="stochdepth").run()
    assert "cut it" not in str(told.value)
    assert experiment(model=Branching(), method="fedavg", rounds=1).run().result is not None


class DropsItself(Branching):
    """Reads self.training, so it is another graph in training than in evaluation."""

    def forward(self, x: Tensor) -> Any:
        return self.head(nn.functional.dropout(self.body(x.flatten(1)), 0.5, self.training))


def test_a_line_that_cut_would_reject_is_not_shown(desk: Path) -> None:
    with pytest.raises(fl.UserError, match=r"nn\.Dropout instead of.*fedloom\.Chain\(") as told:
        experiment(model=DropsItself(), method="fedper").run()
    assert "fedloom.cut" not in str(told.value)
    too_few = r"5 blocks, .* cut automatically it has only 2, 4, head; write it as fedloom\.Chain"
    with pytest.raises(fl.UserError, match=too_few):
        experiment(model=small_cnn(), method="fedper(blocks=4)").run()
    with pytest.raises(fl.UserError, match=r"needs a block 'conv1' .* it has only 2, 4, head"):
        experiment(model=small_cnn(), method="fedafa(at=conv1)").run()
    assert experiment(model=small_cnn(), method="fedafa(at='2')", rounds=1).run().result


def test_a_model_of_one_block_is_cut_where_the_method_needs_blocks(desk: Path) -> None:
    by_hand = fl.cut(small_cnn(), at=["2", "4"], example=torch.zeros(2, 1, 8, 8))
    model = small_cnn()
    by_hand.load_state_dict(dict(zip(by_hand.state_dict(), model.state_dict().values())))  # noqa: B905
    for method in ("fedmlb", "fedper"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            automatic = experiment(model=model, method=method, rounds=1).run()
        assert any("needs blocks, so the model was cut into 2, 4, head" in str(w) for w in said)
        assert automatic.model.names == ("2", "4", "head")  # type: ignore[union-attr]
        assert sha(automatic) == sha(experiment(model=by_hand, method=method, rounds=1).run())
    assert isinstance(experiment(model=model, rounds=1).run().model, nn.Sequential)


def test_a_block_that_overwrites_its_input_is_rejected(desk: Path) -> None:
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 4))
    )
    with pytest.raises(fl.UserError, match="block 'head' begins with a layer that overwrites"):
        experiment(model=net, method="fedper").run()


@pytest.mark.parametrize(
    "out",
    [
        lambda net, x, scores: {"features": x, "logits": scores},
        lambda net, x, scores: ModelOutput(loss=None, logits=scores),
        lambda net, x, scores: SimpleNamespace(logits=scores),
        lambda net, x, scores: (None, scores, x),
        lambda net, x, scores: (scores, scores) if net.training else scores,
    ],
)
def test_logits_among_other_values(out: Any, desk: Path) -> None:
    plain, several = Scores(lambda net, x, scores: scores), Scores(out)
    several.load_state_dict(plain.state_dict())
    run = experiment(model=several, method="fedprox").run()
    assert sha(run) == sha(experiment(model=plain, method="fedprox").run())
    assert run.predict(np.zeros((2, 8, 8), dtype=np.uint8)).shape == (2,)


def lazy() -> nn.Module:
    return nn.Sequential(
        nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)
    )


def eager() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4)
    )


@pytest.mark.parametrize("model", [lazy, lazy()])
def test_lazy_layers_get_the_weights_of_ordinary_ones(model: Any, desk: Path) -> None:
    assert sha(experiment(model=model).run()) == sha(experiment(model=eager).run())
    assert sha(experiment(model=model, seed=1).run()) != sha(experiment(model=eager).run())


def test_lazy_layers_that_no_sample_reaches(desk: Path) -> None:
    unused = flat()
    unused.spare = nn.LazyLinear(3)
    unused.forward = lambda x: unused[1](unused[0](x))
    with pytest.raises(fl.UserError, match=r"the lazy layer of 'spare\.\w+' got no weights"):
        experiment(model=lambda: unused).run()
    with pytest.raises(fl.UserError, match=r"has lazy layers, and a sample of shape \(1, 8, 8\)"):
        experiment(model=nn.Sequential(nn.LazyLinear(5), nn.Linear(4, 4))).run()


def test_a_projection_that_would_dwarf_the_model(desk: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 128, 3), nn.Flatten(), nn.Linear(4608, 4))
    with pytest.raises(fl.UserError, match=r"4,608 x 4,608 weights.*nn.Linear\(4608, 256\)"):
        experiment(model=model, method="moon").run()
    assert experiment(model=small_cnn(), method="moon", rounds=1).run().result is not None


class ObjectOutput(Branching):
    """As transformers return logits, in an object."""

    def forward(self, x: Tensor) -> Any:
        return SimpleNamespace(logits=super().forward(x))


def test_a_model_that_returns_an_object_and_cannot_be_cut_is_told_what_to_write(desk: Path) -> None:
    with pytest.raises(fl.UserError, match=r"at least 2 blocks.*fedloom\.Chain\("):
        experiment(model=ObjectOutput(), method="fedrep").run()


class Keeps(nn.Module):
    """Subtracts a running mean of its features, which it keeps in a buffer or an attribute."""

    def __init__(self, where: str, always: bool = False, in_place: bool = False) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, 4)
        self.always, self.in_place = always, in_place
        if where == "attribute":
            self.mean = torch.ones(8)
        else:
            self.register_buffer("mean", torch.ones(8), persistent=where == "saved")

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x.flatten(1))
        if self.training or self.always:
            mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
            self.mean = self.mean.copy_(mean) if self.in_place else mean
        scores: Tensor = self.head(h - self.mean)
        return scores


@pytest.mark.parametrize("where", ["attribute", "unsaved"])
def test_a_model_that_keeps_something_between_forward_passes(where: str, desk: Path) -> None:
    """The next client would get it from the one before, and a worker would have its own."""
    said = r"model 'Keeps\S*' returns something else for the same samples in its next forward pass"
    with pytest.raises(fl.UserError, match=said):
        experiment(model=Keeps(where)).run("refused")
    assert not Path("refused").exists()
    assert experiment(model=Keeps("saved"), rounds=1).run().result is not None


@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_a_buffer_that_is_replaced_is_one_that_is_overwritten(method: str, desk: Path) -> None:
    replaced, overwritten = Keeps("saved"), Keeps("saved", in_place=True)
    replaced.load_state_dict(overwritten.state_dict())
    got = experiment(model=replaced, method=method).run().model
    expected = experiment(model=overwritten, method=method).run().model
    assert not got.mean.equal(torch.ones(8))
    assert got.mean.equal(expected.mean) and got.body.weight.equal(expected.body.weight)


def test_a_model_that_draws_without_torchs_seed(desk: Path) -> None:
    model = Scores(lambda net, x, scores: scores * random.random())
    with pytest.raises(fl.UserError, match="draws random numbers without torch's seed"):
        experiment(model=model).run()


def test_a_buffer_that_changes_in_evaluation(desk: Path) -> None:
    said = r"changes its 'model.mean' in evaluation, .* in training only: if self.training:"
    with pytest.raises(fl.UserError, match=said):
        experiment(model=Keeps("saved", always=True)).run()


def test_a_mask_of_infinities_is_told_not_to_travel(desk: Path) -> None:
    def masked(persistent: bool) -> nn.Module:
        net = flat()
        mask = torch.full((3, 3), -torch.inf).triu(1)
        net[1].register_buffer("mask", mask, persistent=persistent)
        return net

    said = r"'model.1.mask' of model .* has NaN or Inf, .* register_buffer\(..., persistent=False\)"
    with pytest.raises(fl.UserError, match=said):
        experiment(model=masked(persistent=True)).run()
    assert experiment(model=masked(persistent=False), rounds=1).run().result is not None
    broken = flat()
    broken[1].bias.data[0] = torch.nan
    with pytest.raises(fl.UserError, match=r"'model.1.bias' .* give it finite initial values"):
        experiment(model=broken).run()


AUTO_MODELS = """
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(64, 4), nn.Parameter(torch.ones(()))

    def forward(self, x):
        return {"logits": self.fc(x.flatten(1)) * self.scale}


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.position = nn.Conv2d(1, 5, 4, 4), nn.Embedding(4, 5)
        self.fc = nn.Linear(5, 4)

    def forward(self, x):
        return self.fc((self.patch(x).flatten(2) + self.position.weight.T).mean(2))


class OwnEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.fc = nn.Parameter(torch.randn(9, 5)), nn.Linear(5, 4)

    def forward(self, tokens):
        return self.fc(self.words[tokens].mean(1))
"""


@pytest.mark.parametrize("model", ["Scaled", "Positions", "OwnEmbedding"])
def test_the_default_engine_takes_any_model(model: str, desk: Path) -> None:
    """It estimated the work of a step on numbers where a model takes tokens, and the reverse."""
    (desk / "odd.py").write_text(AUTO_MODELS)
    data: dict[str, Any] = {}
    if model == "OwnEmbedding":
        tokens = np.random.default_rng(0).integers(9, size=(80, 6))
        data = {"data": (tokens, tokens[:, 0] % 4), "kind": "text", "partition": "iid"}
    run = experiment(model=f"odd.py:{model}", engine="auto", **data).run()
    assert sha(run) == sha(experiment(model=f"odd.py:{model}", engine="inprocess", **data).run())


@pytest.mark.parametrize("out", [lambda y: {"logits": y}, lambda y: (y, None)])
@pytest.mark.parametrize("method", ["fedmix", "gradaug(width=0.5,smallest=1)"])
def test_methods_with_a_forward_pass_of_their_own_find_the_logits(
    method: str, out: Any, desk: Path
) -> None:
    class Returns(nn.Sequential):
        def forward(self, x: Tensor) -> Any:
            scores = super().forward(x)
            return out(scores) if self.wrapped else scores

    def model(wrapped: bool) -> nn.Module:
        torch.manual_seed(0)
        net = Returns(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 4))
        net.wrapped = wrapped
        return net

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = [
            experiment(method=method, model=fl.Chain({"model": model(wrapped)})).run()
            for wrapped in (True, False)
        ]
    assert sha(runs[0]) == sha(runs[1])


class FailsBackward(nn.Module):
    """Writes over what the backward pass needs, or is computed again in a way that has none."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.fc, self.head, self.how = nn.Linear(64, 8), nn.Linear(8, 4), how

    def forward(self, x: Tensor) -> Tensor:
        h = torch.sigmoid(self.fc(x.flatten(1)))
        if self.how == "checkpoint":
            again = torch.utils.checkpoint.checkpoint
            h = again(torch.tanh, h, use_reentrant=True)  # type: ignore[no-untyped-call]
        else:
            h += 1
        scores: Tensor = self.head(h)
        return scores


@pytest.mark.parametrize(
    ("how", "why"), [("write", "modified by an inplace operation"), ("checkpoint", "use_reentrant")]
)
def test_a_model_that_fails_in_its_backward_pass(how: str, why: str, desk: Path) -> None:
    """Every client would fail, in every round."""
    with pytest.raises(fl.UserError, match=rf"(?s)fails in its backward pass: .*{why}"):
        experiment(model=FailsBackward(how)).check()


class OwnWords(nn.Module):
    """A model of texts without an nn.Embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Parameter(torch.ones(9, 5)), nn.Linear(5, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.words[tokens].mean(1))
        return scores


@pytest.mark.parametrize("method", ["mixup", "fedmix", "m2m", "noisemix", "meanmix"])
def test_tokens_are_not_mixed(method: str, desk: Path) -> None:
    """Whatever a model embeds them by; M2m failed after its warm-up."""
    torch.manual_seed(0)
    tokens = np.random.default_rng(0).integers(9, size=(80, 6))
    data = {"data": (tokens, tokens[:, 0] % 4), "kind": "text", "partition": "iid"}
    with pytest.raises(fl.UserError, match="takes numbers, not text, and these samples are tokens"):
        experiment(method=method, model=OwnWords(), **data).check()


def test_moon_leaves_nothing_of_its_trace_in_a_model(desk: Path) -> None:
    """A buffer that forward replaces was left as a symbol, and the message was about the sample."""

    class Centred(Scores):
        def __init__(self) -> None:
            super().__init__(lambda net, x, scores: scores)
            self.register_buffer("mean", torch.zeros(64))

        def forward(self, x: Tensor) -> Any:
            x = x.flatten(1)
            if self.training:
                self.mean = x.detach().mean(0)
            return self.fc(x - self.mean)

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert experiment(method="moon", model=Centred(), rounds=1).run().result
