"""The settings of a run as one complete, checked `Config`. This module does not import torch.

Names with arguments (a method, a model, a partition, a sampler) may be written short, as in
`dirichlet(alpha=0.1)`, or as a table.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from fedloom.core.errors import raise_all, shown, shown_text
from fedloom.core.signature import MAX_COUNT
from fedloom.core.spec import Spec, parse
from fedloom.core.user_code import checksums, note_origin, short_reference
from fedloom.engines.registry import CHOICES as ENGINE_CHOICES
from fedloom.engines.registry import check_name as check_engine
from fedloom.settings import toml
from fedloom.settings.data import DataSettings
from fedloom.settings.evaluate import EvaluateSettings
from fedloom.settings.fields import Settings, SpecField
from fedloom.settings.guard import GuardSettings
from fedloom.settings.overrides import normalised, read, references
from fedloom.settings.problems import describe_problem
from fedloom.settings.train import TrainSettings


class Config(Settings):
    """All settings of a run."""

    seed: int = Field(0, ge=0, lt=2**63, description="the seed; all randomness derives from it")
    rounds: int = Field(20, ge=1, le=MAX_COUNT, description="rounds of training")
    method: dict[str, Any] = Field(
        {"name": "fedavg"},
        description="a method, or several combined with +; a table of parameters for each",
    )
    task: Literal["classification", "multilabel", "regression", "next-token"] = Field(
        "classification",
        description="what is learned: one class per sample, several labels, numbers, or tokens",
    )
    loss: str = Field(
        "",
        description="a loss of your own, file.py:function of (outputs, targets), their mean; "
        "'': that of the task",
    )
    model: SpecField = Field(
        Spec("lenet5"), description="a model; see: fedloom models; or file.py:function"
    )
    data: DataSettings = DataSettings()
    train: TrainSettings = TrainSettings()
    sample: SpecField = Field(
        Spec("uniform", {"per_round": 5}), description="who takes part in a round"
    )
    evaluate: EvaluateSettings = EvaluateSettings()
    guard: GuardSettings = GuardSettings()
    engine: str = Field(
        "auto",
        description=f"how clients are simulated: {', '.join(ENGINE_CHOICES)}; "
        "auto: the fastest for this run, by a calibration that is stored",
    )
    workers: int = Field(
        0,
        ge=0,
        le=MAX_COUNT,
        description="worker processes of the pool or of Ray; 0: one per core, or per GPU",
    )
    device: str = Field(
        "cpu",
        description="auto, cpu, cuda, cuda:1 or mps; with the pool, cuda is every GPU, in turn",
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="type of weights and data")
    precision: Literal["full", "bf16", "fp16"] = Field(
        "full",
        description="arithmetic of local training: full: that of dtype; bf16, fp16: mixed "
        "precision, with weights in float32 and, for fp16, a scaled loss",
    )
    deterministic: bool = Field(
        True,
        description="on a GPU, one seed gives one result; false: faster kernels whose sums differ "
        "from run to run; without effect on a CPU",
    )
    layout: Literal["auto", "contiguous", "channels_last"] = Field(
        "auto",
        description="memory layout of images; auto: channels last on a CPU for built-in models",
    )
    compile: bool = Field(
        False,
        description="compile the model's blocks (half a minute); close, but not the same bits",
    )
    checkpoint_every: int = Field(
        1,
        ge=1,
        le=MAX_COUNT,
        description="rounds between two checkpoints; the last round always has one",
    )

    @field_validator("engine")
    @classmethod
    def _engine(cls, name: str) -> str:
        return check_engine(name)

    @field_validator("method")
    @classmethod
    def _method(cls, table: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(table.get("name"), str):
            raise ValueError(
                f"name={shown(table.get('name'))} is not a string; "
                "write the name of a method, see: fedloom methods"
            )
        named = [spec.name for spec in parse(table["name"])]
        for key, value in table.items():
            if key != "name" and (key not in named or not isinstance(value, Mapping)):
                near = difflib.get_close_matches(key, named, n=1, cutoff=0.5)
                guess = f"did you mean '{near[0]}'? " if near and near[0] != key else ""
                raise ValueError(
                    f"'{shown_text(key)}' = {shown(value)} is not a table of parameters of "
                    f"{shown_text(' or '.join(named))}; "
                    f"{guess}write method.{shown_text(named[0])}.PARAMETER = VALUE"
                )
        return table

    @model_validator(mode="after")
    def _precision_fits(self) -> Config:
        if self.precision != "full" and self.dtype != "float32":
            raise ValueError(
                f"precision='{self.precision}' keeps weights in float32, and dtype is "
                f"'{self.dtype}'; set dtype='float32' or precision='full'"
            )
        return self

    @property
    def method_specs(self) -> list[Spec]:
        """The methods to be combined, each with its parameters."""
        specs = parse(self.method["name"])
        return [Spec(s.name, {**s.args, **self.method.get(s.name, {})}) for s in specs]

    @property
    def title(self) -> str:
        """The method's name in tables."""
        return "+".join(short_reference(spec.name) for spec in self.method_specs)

    @property
    def references(self) -> list[str]:
        """The user-defined functions that the settings name; to use them is to run their code."""
        named = {"method", "model", "loss", "evaluate"}
        return references(self.model_dump(mode="json", include=named), DEFAULTS)

    def code(self) -> dict[str, str]:
        """The user's own source files that the result depends on, with their checksums now."""
        methods, metrics = [s.name for s in self.method_specs], self.evaluate.metrics or ()
        return checksums([*methods, self.model.name, self.loss, *metrics])

    def text(self) -> str:
        """All settings as TOML."""
        return toml.dumps(self.model_dump(mode="json"))


DEFAULTS: Mapping[str, Any] = Config().model_dump(mode="json")


def load(raw: Mapping[str, Any], origin: str = "settings") -> Config:
    """A checked config from nested settings; raises a UserError with every problem at once."""
    try:
        return Config.model_validate(normalised(raw, DEFAULTS))
    except ValidationError as error:
        problems = [describe_problem(e, Config, DEFAULTS) for e in error.errors()]
    raise_all(problems, origin)
    raise AssertionError


def load_file(path: Path) -> Config:
    """The checked config of a run, from its config.toml."""
    config = load(read(path, from_run=True), f"'{path}'")
    note_origin(config.references, str(path))
    return config
