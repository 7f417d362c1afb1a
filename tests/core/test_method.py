"""A method that cannot work is rejected before round 0, with all its problems at once."""

from dataclasses import replace

import pytest
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.compose import join
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Method, Phase, blocks_needed
from fedloom.core.select import blocks, norms, nothing
from fedloom.core.server import Stage, apply_mean, mean, no_memory
from fedloom.methods.fedavg import fedavg
from fedloom.stages.optimise import momentum, scale
from support.models import CLASSES, nested


def idle(kind: str, name: str = "idle") -> Stage:
    return Stage(kind, name, no_memory, lambda memory, cohort: (memory, cohort))  # type: ignore[arg-type]


QUESTION = Exchange("mean", lambda job, key: {}, lambda answers, key: {})
ORDER = "the order is reply, combine, optimise, apply"
PROBLEMS = {
    "an upload without combiner": (
        Method("scaffold", sends=("control",)),
        "upload 'control' has no combiner; add mean(of='control')",
    ),
    "no mean at all": (
        Method("x", server=(apply_mean(),)),
        "upload 'model' has no combiner; add mean(of='model')",
    ),
    "two means": (
        Method("x", server=(mean(), mean(by="clients"), apply_mean())),
        "upload 'model' has 2 combiners "
        "(mean of model by samples, mean of model by clients); keep one",
    ),
    "an optimiser before the mean": (
        Method("x", server=(momentum(0.5), mean(), apply_mean())),
        "stage 'mean of model by samples' of kind 'combine' follows a stage of kind 'optimise'; "
        f"{ORDER}",
    ),
    "a reply stage after the mean": (
        Method("x", server=(mean(), idle("reply", "clip"), apply_mean())),
        f"stage 'clip' of kind 'reply' follows a stage of kind 'combine'; {ORDER}",
    ),
    "two optimisers": (
        Method("x", server=(mean(), scale(0.5), momentum(0.5), apply_mean())),
        "two server optimisers (scale(lr=0.5), momentum(beta=0.5, lr=1)) cannot be combined; "
        "keep one",
    ),
    "nothing is applied": (
        Method("x", server=(mean(),)),
        "0 stages apply the change to the model, but exactly one must; "
        "end the server with one apply_mean()",
    ),
    "one memory for two": (
        Method("x", server=(idle("reply"), idle("reply"), mean(), apply_mean())),
        "two stages are called 'idle' and would share a memory; rename one",
    ),
    "nothing is trained": (
        Method("x", (Phase(slot="own"),), evaluates="own"),
        "no phase trains the slot 'model'; add Phase()",
    ),
    "a result that no phase makes": (
        Method("x", evaluates="personal"),
        "evaluates 'personal', which no phase trains; the slots are model",
    ),
    "a finale that makes another result": (
        Method("x", (Phase(), Phase(slot="own")), finale=(Phase(),), evaluates="own"),
        "evaluates 'own', which no phase of the finale trains; the slots are model",
    ),
    "two questions of one name": (
        Method("x", prologue=(QUESTION, QUESTION)),
        "two exchanges are called 'mean'; rename one",
    ),
    "two uploads of one name": (
        Method(
            "x", server=(mean(), mean(of="control"), apply_mean()), sends=("control", "control")
        ),
        "two uploads are called 'control'; rename one",
    ),
    "a name that a file cannot hold": (
        Method("x", server=(idle("reply", "1/2"), mean(), apply_mean())),
        "stage name '1/2' contains a '/'; rename it",
    ),
    "no weight to train": (
        Method("x", (Phase(trains=nothing),)),
        "phase 0 of slot 'model' trains no weight of this model; "
        "choose other tensors or another model",
    ),
    "too short a model": (
        Method("x", needs=(blocks_needed(4),)),
        "needs a model of at least 4 blocks, but the model has the blocks stem, body, head",
    ),
}


@pytest.mark.parametrize(("method", "message"), PROBLEMS.values(), ids=PROBLEMS)
def test_problems(method: Method, message: str) -> None:
    with pytest.raises(UserError) as error:
        method.check(nested())
    assert str(error.value) == f"method '{method.name}': {message}"


def test_all_problems_are_reported_at_once() -> None:
    method = Method(
        "x", server=(mean(),), sends=("control",), evaluates="own", needs=(blocks_needed(9),)
    )
    with pytest.raises(UserError) as error:
        method.check(nested())
    first, *rest = str(error.value).splitlines()
    assert first == "method 'x': 4 problems"
    assert all(line.startswith("  - ") for line in rest)


def longer(chain: Chain, key: Key) -> Chain:
    """The chain with one more block, whose weights are drawn from the key."""
    block = nn.Linear(CLASSES, CLASSES, bias=False).double()
    nn.init.normal_(block.weight, generator=key.fold("longer").generator())
    return Chain({name: chain.block(name) for name in chain.names} | {"more": block})


def test_needs_are_checked_on_the_original_model_and_the_rest_on_the_reshaped_one() -> None:
    reshaping = Method(
        "x", (Phase(trains=blocks("more")),), needs=(blocks_needed(4),), reshape=(longer,)
    )
    with pytest.raises(
        UserError,
        match=r"^method 'x': needs a model of at least 4 blocks, .* blocks stem, body, head$",
    ):
        reshaping.reshaped(nested(), Key.root(0))
    fitting = replace(reshaping, needs=(blocks_needed(3),))
    fitting.check(fitting.reshaped(nested(), Key.root(0)))


def test_without_reshape_the_model_is_unchanged() -> None:
    chain = nested()
    assert fedavg().reshaped(chain, Key.root(0)) is chain


def test_joined_methods_reshape_one_after_the_other() -> None:
    joined = join(
        [
            Method("a", reshape=(longer,)),
            fedavg(),
            Method("b", reshape=(lambda chain, key: chain.double(),)),
        ]
    )
    assert len(joined.reshape) == 2
    assert joined.reshaped(nested(), Key.root(0)).names == ("stem", "body", "head", "more")


def test_slots_that_a_solver_makes_can_be_evaluated() -> None:
    Method("x", (Phase(makes=("theta",)),), evaluates="theta").check(nested())


def test_valid_methods_have_no_problems() -> None:
    fedavg().check(nested())
    Method("x", (Phase(), Phase(slot="own")), evaluates="own").check(nested())
    Method("x", needs=(blocks_needed(3),)).check(nested())


def test_which_methods_give_every_client_its_own_model() -> None:
    assert not fedavg().personal
    assert not Method("x", private=nothing).personal
    assert Method("x", private=norms).personal
    assert Method("x", finale=(Phase(),)).personal
    assert Method("x", (Phase(), Phase(slot="own")), evaluates="own").personal


def test_a_private_weight_that_another_layer_shares_is_rejected() -> None:
    """It would leave the client under the other layer's name."""
    chain = Chain({"body": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
    method = Method("keeps", private=blocks("head"))
    method.check(chain)
    chain.block("head").weight = chain.block("body").weight
    said = r"keeps 'head\.weight' at the clients, which is also 'body\.weight' and would be sent"
    with pytest.raises(UserError, match=said):
        method.check(chain)
    fedavg().check(chain)
    Method("keeps all", private=blocks("body", "head")).check(chain)
