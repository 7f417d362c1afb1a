"""What can be wrong with a method. Each check yields a message for every problem that it finds.

`Method.check` runs them all before round 0 and raises every problem at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from fedloom.core.automatic_cuts import WRITE_CHAIN
from fedloom.core.chain import Chain
from fedloom.core.chain_from_module import cut
from fedloom.core.errors import UserError
from fedloom.core.server import KINDS

if TYPE_CHECKING:
    from fedloom.core.method import Method, Need

Problems = Iterator[str]


def problems(method: Method, chain: Chain) -> Problems:
    """Every problem of the method with the model that is trained."""
    for server_check in SERVER_CHECKS:
        yield from server_check(method)
    for client_check in CLIENT_CHECKS:
        yield from client_check(method, chain)


def unmet_needs(method: Method, chain: Chain) -> Problems:
    """What the method needs and the model does not have."""
    names = ", ".join(chain.names)
    blocks = f"only the block {names}" if len(chain.names) == 1 else f"the blocks {names}"
    for need in method.needs:
        if not need.met(chain):
            remedy = _way_to_cut(chain, need) if need.by_cutting else ""
            yield f"needs {need.text}, but the model has {blocks}{remedy}"


def _way_to_cut(chain: Chain, need: Need) -> str:
    """How to make the blocks that are needed of a single one; empty if there are several."""
    if len(chain.names) > 1:
        return ""
    try:
        blocks = cut(chain)
    except UserError as error:
        return f"; {error}"
    if need.met(blocks):
        line = f"return fedloom.cut(model, at={list(blocks.cut_at)})"
        return f"; cut it into blocks in the function that builds it, for example: {line}"
    names = ", ".join(blocks.names)
    return f"; cut automatically it has only {names}; {WRITE_CHAIN} with the blocks that are needed"


def _stages_follow_the_order_of_kinds(method: Method) -> Problems:
    latest = 0
    for stage in method.server:
        position = KINDS.index(stage.kind)
        if position < latest:
            yield (
                f"stage '{stage.name}' of kind '{stage.kind}' follows a stage of kind "
                f"'{KINDS[latest]}'; the order is {', '.join(KINDS)}"
            )
        latest = max(latest, position)


def _every_upload_has_one_combiner(method: Method) -> Problems:
    for upload in ("model", *method.sends):
        combiners = [s.name for s in method.server if s.kind == "combine" and s.handles == upload]
        if not combiners:
            yield f"upload '{upload}' has no combiner; add mean(of='{upload}')"
        if len(combiners) > 1:
            names = ", ".join(combiners)
            yield f"upload '{upload}' has {len(combiners)} combiners ({names}); keep one"


def _one_stage_updates_the_model(method: Method) -> Problems:
    count = sum(s.kind == "apply" and s.handles == "model" for s in method.server)
    if count != 1:
        yield (
            f"{count} stages apply the change to the model, but exactly one must; "
            "end the server with one apply_mean()"
        )


def _stage_names_are_unique(method: Method) -> Problems:
    if repeated := _repeated(s.name for s in method.server):
        yield f"two stages are called '{repeated}' and would share a memory; rename one"


def _stage_names_have_no_slash(method: Method) -> Problems:
    for stage in method.server:
        if "/" in stage.name:
            yield f"stage name '{stage.name}' contains a '/'; rename it"


def _upload_names_are_unique(method: Method) -> Problems:
    if repeated := _repeated(method.sends):
        yield f"two uploads are called '{repeated}'; rename one"


def _exchange_names_are_unique(method: Method) -> Problems:
    if repeated := _repeated(e.name for e in method.prologue):
        yield f"two exchanges are called '{repeated}'; rename one"


def _at_most_one_optimiser(method: Method) -> Problems:
    optimisers = [s.name for s in method.server if s.kind == "optimise"]
    if len(optimisers) > 1:
        names = ", ".join(optimisers)
        yield f"two server optimisers ({names}) cannot be combined; keep one"


def _needs_are_met(method: Method, chain: Chain) -> Problems:
    if not method.reshape:  # otherwise they were checked on the model before it was reshaped
        yield from unmet_needs(method, chain)


def _some_weight_is_trainable(method: Method, chain: Chain) -> Problems:
    parameters = list(chain.parameters())
    if parameters and not any(p.requires_grad for p in parameters):
        yield (
            "has nothing to train: every weight of this model is frozen (requires_grad=False); "
            "leave at least one layer trainable"
        )


def _every_phase_trains_weights(method: Method, chain: Chain) -> Problems:
    if len(chain.names) == 1 and any(_needs_are_met(method, chain)):
        return  # the blocks that it names do not exist before the model is cut
    parameters = dict(chain.named_parameters())
    for number, phase in enumerate((*method.phases, *method.finale)):
        chosen = parameters.keys() & phase.trains(chain)
        if not any(parameters[name].requires_grad for name in chosen):
            found = "only frozen weights" if chosen else "no weight"
            yield (
                f"phase {number} of slot '{phase.slot}' trains {found} of this model; "
                "choose other tensors or another model"
            )


def _no_private_tensor_is_sent_under_another_name(method: Method, chain: Chain) -> Problems:
    """Tied weights have several names; if only some of them are private, the tensor leaves."""
    if len(chain.names) == 1 and any(_needs_are_met(method, chain)):
        return  # the blocks that it names do not exist before the model is cut
    private, names = method.private(chain), dict[int, list[str]]()
    for name, tensor in chain.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), []).append(name)
    for tied in names.values():
        kept, sent = [n for n in tied if n in private], [n for n in tied if n not in private]
        if kept and sent:
            yield (
                f"keeps '{kept[0]}' at the clients, which is also '{sent[0]}' and would be sent; "
                "let these layers not share their weights, or put both into one block"
            )


def _the_model_is_trained(method: Method, chain: Chain) -> Problems:
    if "model" not in {p.slot for p in method.phases}:
        yield "no phase trains the slot 'model'; add Phase()"


def _the_evaluated_slot_exists(method: Method, chain: Chain) -> Problems:
    slots = {slot for p in method.finale or method.phases for slot in (p.slot, *p.makes)}
    if method.evaluates not in slots:
        phase = "phase of the finale" if method.finale else "phase"
        names = ", ".join(sorted(slots))
        yield f"evaluates '{method.evaluates}', which no {phase} trains; the slots are {names}"


def _repeated(names: Iterable[str]) -> str | None:
    """The first name, in alphabetical order, that occurs more than once."""
    return min((name for name, count in Counter(names).items() if count > 1), default=None)


SERVER_CHECKS: tuple[Callable[[Method], Problems], ...] = (
    _stages_follow_the_order_of_kinds,
    _every_upload_has_one_combiner,
    _one_stage_updates_the_model,
    _stage_names_are_unique,
    _stage_names_have_no_slash,
    _upload_names_are_unique,
    _exchange_names_are_unique,
    _at_most_one_optimiser,
)
CLIENT_CHECKS: tuple[Callable[[Method, Chain], Problems], ...] = (
    _needs_are_met,
    _some_weight_is_trainable,
    _every_phase_trains_weights,
    _no_private_tensor_is_sent_under_another_name,
    _the_model_is_trained,
    _the_evaluated_slot_exists,
)
