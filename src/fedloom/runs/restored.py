"""What a run resumes from: the state of a checkpoint, its manifest, and warnings for the user."""

from __future__ import annotations

from dataclasses import dataclass

from fedloom.core.identity import RunIdentity
from fedloom.core.state import ServerState
from fedloom.runs.checkpoint import LoadedCheckpoint
from fedloom.runs.made_with import made_with
from fedloom.runs.manifest import Manifest

_LAST_BITS = "the result may differ in its last bits from an uninterrupted run"
_EFFECTS = dict.fromkeys(
    ("fedloom", "fedloom source"), "the result may differ from an uninterrupted run"
)


@dataclass(frozen=True)
class Restored:
    """The state from which a run resumes, its manifest, and warnings for the user."""

    state: ServerState
    manifest: Manifest
    warnings: list[str]

    @classmethod
    def from_checkpoint(cls, loaded: LoadedCheckpoint) -> Restored:
        last = loaded.manifest.round
        skipped = [
            f"the checkpoint of round {number} is skipped ({reason}); resuming from round {last}"
            for number, reason in loaded.rejected.items()
        ]
        return cls(loaded.state, loaded.manifest, skipped + _version_warnings(loaded.manifest))

    def notes_on(self, now: RunIdentity) -> list[str]:
        """The warnings, and one for each of the user's files that has changed since."""
        edited = [
            f"'{place}' was edited after the last checkpoint: "
            "the rounds before it were run with the earlier version"
            for place in self.manifest.identity.edited(now.code)
        ]
        return [*self.warnings, *edited]


def _version_warnings(manifest: Manifest) -> list[str]:
    """A warning for each change of software or processor since the checkpoint."""
    changes = manifest.identity.made_with.changes(made_with())
    return [
        f"the checkpoint of round {manifest.round} was made with {what} {then}, "
        f"and this is {what} {now}: {_EFFECTS.get(what, _LAST_BITS)}"
        for what, (then, now) in changes.items()
    ]
