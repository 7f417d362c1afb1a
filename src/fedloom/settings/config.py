"""The settings of a run: a TOML file, flags and `--set a.b=c` become one checked, complete Config; all errors at once.

Names with arguments (a partition, a model, a sampler, a method) may be written short, `dirichlet(alpha=0.1)`, or as a table.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)

from fedloom.core.errors import raise_all
from fedloom.core.spec import Spec, parse
from fedloom.core.user_code import checksums, short_reference
from fedloom.engines.registry import CHOICES as ENGINE_CHOICES
from fedloom.engines.registry import check_name as check_engine
from fedloom.settings import toml
from fedloom.settings.overrides import normalised, read


def _spec(value: Any) -> Any:
    """A word from its short form or its table."""
    if isinstance(value, Spec):
        return value
    if isinstance(value, str) and len(words := parse(value)) == 1:
        return words[0]
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return Spec(value["name"], {k: v for k, v in value.items() if k != "name"})
    raise ValueError(
        f"{value!r} is not one name; write a name, name(argument=value), or a table with a name"
    )


SpecField = Annotated[
    Spec,
    BeforeValidator(_spec),
    PlainSerializer(
        lambda w: {"name": w.name, **{k: v for k, v in w.args.items() if v is not None}}
    ),
]


class Settings(BaseModel):
    """A table of settings; unknown names are errors."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        validate_default=True,
        allow_inf_nan=False,
    )


class DataSettings(Settings):
    """What the clients hold."""

    name: str = Field("fashion-mnist", description="a data set; see: fedloom data list")
    classes: int | None = Field(
        None, ge=2, description="only the first so many classes, for experiments in minutes"
    )
    per_class: int | None = Field(
        None, ge=1, description="only the first so many training samples of each class"
    )
    pixels: int | None = Field(
        None, ge=1, description="images averaged down to so many pixels a side"
    )
    mean: tuple[float, ...] | None = Field(
        None, description="constants of normalisation by channel, of [0, 1]; else the set's own"
    )
    std: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None, description="their deviations; mean and std go together"
    )
    clients: int = Field(
        20, ge=0, description="number of clients; 0: one for each user of the data"
    )
    partition: SpecField = Field(
        Spec("dirichlet", {"alpha": 0.3}), description="how the training data are dealt out"
    )
    longtail: float = Field(
        1.0, ge=1, description="imbalance factor of the training data; 1 leaves them as they are"
    )
    augment: tuple[SpecField, ...] = Field((), description="augmentations, in order")


class ScheduleSettings(Settings):
    """The learning rate over the rounds."""

    kind: Literal["constant", "exponential", "step", "cosine"] = Field(
        "constant", description="shape of the schedule"
    )
    factor: float = Field(
        1.0, gt=0, description="exponential: factor a round; step: factor every `every` rounds"
    )
    every: int = Field(1, ge=1, description="rounds between two steps")


class TrainSettings(Settings):
    """How a client descends."""

    lr: float = Field(0.05, gt=0, description="learning rate")
    batch: int = Field(32, ge=1, description="samples a batch")
    epochs: int = Field(1, ge=1, description="local epochs a round")
    steps: int | None = Field(None, ge=1, description="local steps a round instead of epochs")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum; 0 is plain SGD")
    nesterov: bool = Field(False, description="Nesterov's momentum")
    weight_decay: float = Field(0.0, ge=0, description="weight decay on all weights")
    clip: float | None = Field(None, gt=0, description="bound on the global gradient norm")
    drop_last: bool = Field(False, description="leave out the last partial batch of an epoch")
    reset: bool = Field(
        True, description="momentum starts anew each round; false: each client keeps its own"
    )
    schedule: ScheduleSettings = Field(
        ScheduleSettings(), description="learning rate over the rounds"
    )

    @model_validator(mode="after")
    def _fits(self) -> TrainSettings:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov=true needs momentum above 0; set train.momentum=0.9")
        return self


class EvaluateSettings(Settings):
    """When and how the models are scored."""

    every: int = Field(
        1, ge=1, description="rounds between two evaluations; the last round is always evaluated"
    )
    batch: int = Field(
        100, ge=1, description="samples an evaluation batch (one that fits the cache is fastest)"
    )
    target: float | None = Field(
        None, gt=0, lt=1, description="accuracy whose first round is reported"
    )
    personal: bool = Field(
        True, description="score every client's own model at the end, where the method makes one"
    )
    personal_every: int = Field(
        0,
        ge=0,
        description="rounds between two scorings of the clients' own models; 0: only at the end",
    )

    @model_validator(mode="after")
    def _fits(self) -> EvaluateSettings:
        if self.personal_every and not self.personal:
            raise ValueError(
                f"personal_every={self.personal_every} needs personal=true; set evaluate.personal=true"
            )
        return self


class GuardSettings(Settings):
    """What replies are trusted."""

    min_replies: int = Field(1, ge=1, description="valid replies that a round needs")
    max_samples: float = Field(1e8, gt=0, description="samples a client may claim")


class Config(Settings):
    """A run, completely."""

    seed: int = Field(0, ge=0, description="the one seed; every draw hangs on it")
    rounds: int = Field(20, ge=1, description="rounds of training")
    method: dict[str, Any] = Field(
        {"name": "fedavg"},
        description="a method, or several joined by +; a table for each one's parameters",
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
        0, ge=0, description="processes of the pool or of Ray; 0: as many as cores"
    )
    device: str = Field("cpu", description="auto, cpu, cuda or mps")
    dtype: Literal["float32", "float64"] = Field("float32", description="type of weights and data")
    layout: Literal["auto", "contiguous", "channels_last"] = Field(
        "auto",
        description="how images lie in memory; auto: channels last on a CPU for convolutions of the package's models",
    )
    compile: bool = Field(
        False,
        description="compile the model's blocks, half a minute at the start; close, not the same bits",
    )
    checkpoint_every: int = Field(
        1, ge=1, description="rounds between two checkpoints; the last round always has one"
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
                f"name={table.get('name')!r} is not a string; write the name of a method, see: fedloom methods"
            )
        named = [w.name for w in parse(table["name"])]
        for key, value in table.items():
            if key != "name" and (key not in named or not isinstance(value, Mapping)):
                near = difflib.get_close_matches(key, named, n=1, cutoff=0.5)
                guess = f"did you mean '{near[0]}'? " if near and near[0] != key else ""
                raise ValueError(
                    f"'{key}' = {value!r} is not a table of the parameters of {' or '.join(named)}; "
                    f"{guess}write method.{named[0]}.PARAMETER = VALUE"
                )
        return table

    @property
    def words(self) -> list[Spec]:
        """The methods to be joined, each with its own parameters."""
        return [
            Spec(w.name, {**w.args, **self.method.get(w.name, {})})
            for w in parse(self.method["name"])
        ]

    @property
    def title(self) -> str:
        """The method's name as it stands in tables."""
        return "+".join(short_reference(w.name) for w in self.words)

    def code(self) -> dict[str, str]:
        """The user's own files on which a result hangs, with their checksums now."""
        return checksums([*(w.name for w in self.words), self.model.name])

    def text(self) -> str:
        """As TOML, complete."""
        return toml.dumps(self.model_dump(mode="json"))


DEFAULTS: Mapping[str, Any] = Config().model_dump(mode="json")


def load(raw: Mapping[str, Any], origin: str = "settings") -> Config:
    """A checked config from nested settings, or every complaint at once."""
    try:
        return Config.model_validate(normalised(raw, DEFAULTS))
    except ValidationError as error:
        complaints = [_sentence(e) for e in error.errors()]
    raise_all(complaints, origin)
    raise AssertionError


def load_file(path: Path) -> Config:
    """The checked config of a TOML file, such as the config.toml of a run."""
    return load(read(path), f"'{path}'")


def _sentence(error: Any) -> str:
    """One of pydantic's errors as the thing, the value, the choices and the remedy."""
    path = ".".join(str(p) for p in error["loc"])
    if error["type"] == "extra_forbidden":
        known = _names(error["loc"][:-1])
        near = difflib.get_close_matches(str(error["loc"][-1]), known, n=1, cutoff=0.5)
        guess = f"; did you mean '{near[0]}'?" if near else ";"
        return f"no setting '{path}'{guess} (choices: {', '.join(known)})"
    said = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if error["type"] in ("model_type", "dict_type"):
        name = (_names(error["loc"]) or ["name"])[0]
        return f"{path}={error['input']!r} is not a table; set one of its names, for example {path}.{name}"
    if error["type"] == "value_error":
        return f"{path}: {said}" if path else said
    return f"{path}={error['input']!r} should be {said}{_meaning(error['loc'])}"


def _field(loc: tuple[Any, ...]) -> Any:
    at: Any = Config
    field = None
    for step in loc:
        fields = getattr(at, "model_fields", {})
        if step not in fields:
            return None
        field = fields[step]
        at = field.annotation
    return field if loc else Config


def _names(loc: tuple[Any, ...]) -> list[str]:
    found = _field(loc)
    table = found if loc == () else getattr(found, "annotation", None)
    return list(getattr(table, "model_fields", {}))


def _meaning(loc: tuple[Any, ...]) -> str:
    description = getattr(_field(loc), "description", None)
    return f" ({description})" if description else ""
