"""User-defined methods: all features in one, one that fails, one that kills, one that testifies."""

import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Method, Phase
from fedloom.core.params import Params
from fedloom.core.select import norms
from fedloom.core.step import Step


def average(job: Job, key: Key) -> Params:
    x, _ = job.data.batch(torch.arange(len(job.data)))
    return {"x": x.mean(0)}


def pooled(answers: list[Any], key: Key) -> Params:
    return {"x": sum(a["x"] for a in answers) / len(answers)}


def blend(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
    return 0.9 * x + 0.1 * job.shared["mashed"]["x"], y


def everything() -> Method:
    """Exchange, mix, private norms, a second slot and a finale in one method."""
    return Method(
        "everything",
        (Phase(mix=blend), Phase(slot="personal")),
        private=norms,
        prologue=(Exchange("mashed", average, pooled),),
        finale=(Phase(slot="personal"),),
        evaluates="personal",
    )


def broken() -> Method:
    """Fails in its second step."""

    def loss(step: Step) -> Tensor:
        if step.number == 2:
            raise ArithmeticError("broken on purpose")
        return step.ce

    return Method("broken", (Phase(loss=loss),))


def mortal(lives: str) -> Method:
    """Kills its process between two steps, once for every byte in the file `lives`."""
    left = Path(lives)

    def loss(step: Step) -> Tensor:
        if step.number == 2 and left.stat().st_size:
            os.truncate(left, left.stat().st_size - 1)
            os.kill(os.getpid(), signal.SIGKILL)
        return step.ce

    return Method("mortal", (Phase(loss=loss),))


def witness(folder: str) -> Method:
    """Leaves a file in the folder, named after the device on which a client trains."""

    def loss(step: Step) -> Tensor:
        assert step.x.device == step.y.device == step.logits.device
        (Path(folder) / str(step.x.device)).touch()
        return step.ce

    return Method("witness", (Phase(loss=loss),))
