"""What a result depends on besides its settings: the data, the user's code, and what ran it.

A `RunIdentity` is part of every manifest and every result. Two runs are compared by it: different
data are rejected, everything else that differs is noted. Importing this module does not import
torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedloom.core import json_checks as must_be
from fedloom.core.user_code import short_reference

SHOWN_DIGITS = 12  # of a checksum, in messages
UNSET = "unset"

_WORDS = {
    "train": "the training samples",
    "test": "the test samples",
    "normalisation": "the normalisation constants",
    "classes": "the class names",
    "users": "the names of the users",
}


@dataclass(frozen=True)
class DataIdentity:
    """Checksums (sha256, as hex digits) of all of a data set that can change a result.

    The name and `about` do not count: the same samples under another name are the same data.
    """

    train: str  # samples, labels and users, with their types and shapes
    test: str
    normalisation: str  # the kind of data and its mean and std
    classes: str  # the names of the classes, in order
    users: str  # the names of the natural clients, in order
    train_samples: int
    test_samples: int

    @property
    def sha256(self) -> str:
        """One checksum of all of it."""
        return hashlib.sha256(json.dumps(asdict(self)).encode() + b"\n").hexdigest()

    def differences(self, other: DataIdentity) -> list[str]:
        """The names of the fields that differ; empty if the content is the same."""
        ours, theirs = asdict(self), asdict(other)
        return [name for name in ours if ours[name] != theirs[name]]


@dataclass(frozen=True)
class UsedData:
    """The data of a run: the set that the settings name, and which client holds which samples.

    content: of the whole set, before the settings take a part of it. partition: the checksum of
    the rows of every client.
    """

    name: str
    content: DataIdentity
    partition: str

    def __str__(self) -> str:
        return f"'{short_reference(self.name)}' (sha256 {shortened(self.content.sha256)})"

    def differences(self, other: UsedData, partition: bool = True) -> list[str]:
        """What differs, in words; the partition counts only where it is the same by design."""
        differing = self.content.differences(other.content)
        words = [word for name, word in _WORDS.items() if name in differing]
        if not words and partition and self.partition != other.partition:
            ours, theirs = shortened(self.partition), shortened(other.partition)
            words = [f"the samples of each client (partition {ours} and {theirs})"]
        return words


@dataclass(frozen=True)
class MadeWith:
    """The software and the processor that the last bits of a result depend on.

    source: the checksum of fedloom's own code. code_path: what decides which instructions compute:
    those of the processor, and settings of torch, oneDNN and MKL that are not the default.
    """

    fedloom: str
    source: str
    torch: str
    numpy: str
    python: str
    cpu: str
    code_path: Mapping[str, str] = field(default_factory=dict)

    def described(self) -> dict[str, str]:
        """Each fact under the name that messages use."""
        return {
            "fedloom": self.fedloom,
            "fedloom source": shortened(self.source),
            "torch": self.torch,
            "numpy": self.numpy,
            "Python": self.python,
            "CPU": self.cpu,
            **self.code_path,
        }

    def changes(self, now: MadeWith) -> dict[str, tuple[str, str]]:
        """What is not the same now, with both values."""
        then, today = self.described(), now.described()
        return {
            name: (then.get(name, UNSET), today.get(name, UNSET))
            for name in {**then, **today}
            if then.get(name) != today.get(name)
        }


@dataclass(frozen=True)
class RunIdentity:
    """All that a result depends on besides the settings.

    data: None where it is not known. code: checksums of the user's own source files and of the
    local modules that they import, by file or module. changes: what was not the same any more when
    the run was resumed, in words; the rest describes the last rounds.
    """

    made_with: MadeWith
    data: UsedData | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def edited(self, code: Mapping[str, str]) -> list[str]:
        """The user's files that are not the same in `code`, which has their checksums now.

        Files that only one of the two has do not count: another method may use others.
        """
        return [place for place, then in self.code.items() if code.get(place, then) != then]

    def continued(self, now: RunIdentity, round: int) -> RunIdentity:
        """The identity of a run that was resumed after this round, with what has changed."""
        edited = [f"'{place}' was edited" for place in self.edited(now.code)]
        changes = self.made_with.changes(now.made_with)
        other = [f"{what} {old} became {new}" for what, (old, new) in changes.items()]
        news = tuple(f"after round {round}, {change}" for change in (*edited, *other))
        return replace(now, changes=(*self.changes, *news))

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> RunIdentity:
        """The identity that a file holds, in which IDENTITY_CHECK finds nothing wrong."""
        data = facts.get("data")
        if data is not None:
            content = DataIdentity(**data["content"])
            data = UsedData(data["name"], content, data["partition"])
        made_with = MadeWith(**facts["made_with"])
        code, changes = dict(facts.get("code", {})), tuple(facts.get("changes", ()))
        return cls(made_with, data, code, changes)


def shortened(checksum: str) -> str:
    """The first digits of a checksum, enough to tell two apart.

    >>> shortened("00c39be2d50ef17b")
    '00c39be2d50e'
    """
    return checksum[:SHOWN_DIGITS]


_CONTENT = must_be.fields(
    {
        **dict.fromkeys(_WORDS, must_be.checksum()),
        **dict.fromkeys(("train_samples", "test_samples"), must_be.integer()),
    }
)
_DATA = must_be.fields(
    {"name": must_be.text(), "content": _CONTENT, "partition": must_be.checksum()}
)
_MADE_WITH = must_be.fields(
    {
        **dict.fromkeys(("fedloom", "torch", "numpy", "python", "cpu"), must_be.text()),
        "source": must_be.checksum(),
    },
    {"code_path": must_be.mapping_of(must_be.text())},
)
# of a RunIdentity as JSON; what is empty may be missing
IDENTITY_CHECK = must_be.fields(
    {"made_with": _MADE_WITH},
    {
        "data": must_be.optional(_DATA),
        "code": must_be.mapping_of(must_be.checksum()),
        "changes": must_be.list_of(must_be.text()),
    },
)
