"""The data sets of the papers' tables at their full size, as far as costs depend on it.

They need not be on this machine. Sizes of CIFAR and Tiny ImageNet are those of the published files,
ImageNet-200 is 200 classes of ImageNet with 500 training images each, as FedAlign's authors take
them. FEMNIST and Shakespeare have users of different sizes: the mean over all users of LEAF
(Caldas et al., 2018: 805,263 samples of 3,550 writers, 4,226,158 of 1,129 roles), less the fifth
that is held out. The users of a run are a sample, so its cost is an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fedloom.core.errors import unknown_name
from fedloom.data.longtail import class_sizes
from fedloom.settings.data import DataSettings


@dataclass(frozen=True)
class PaperData:
    """A data set: the shape of a sample, classes, training and test samples.

    per_user: mean training samples of a user, where users are the clients.
    """

    shape: tuple[int, ...]
    classes: int
    train: int
    test: int
    per_user: float | None = None

    def client_samples(self, settings: DataSettings) -> float:
        """The training samples of the average client."""
        if settings.partition.name == "user":
            assert self.per_user is not None
            return self.per_user
        per_class = settings.per_class or self.train // self.classes
        if settings.longtail is not None:
            kept = class_sizes(per_class, self.classes, settings.longtail).sum()
        else:
            kept = per_class * self.classes
        return float(kept) / settings.clients


PAPER_DATA: Mapping[str, PaperData] = MappingProxyType(
    {
        "cifar10": PaperData((3, 32, 32), 10, 50_000, 10_000),
        "cifar100": PaperData((3, 32, 32), 100, 50_000, 10_000),
        "tiny-imagenet": PaperData((3, 64, 64), 200, 100_000, 10_000),
        "imagenet-200": PaperData((3, 224, 224), 200, 100_000, 10_000),
        "femnist": PaperData((1, 28, 28), 62, 54_000, 13_600, per_user=0.8 * 805_263 / 3_550),
        "shakespeare": PaperData((80,), 84, 180_000, 45_000, per_user=0.8 * 4_226_158 / 1_129),
    }
)


def paper_data(name: str) -> PaperData:
    """The data set of that name; a UserError if no table of a paper uses it."""
    if name not in PAPER_DATA:
        raise unknown_name("data set of a paper", name, PAPER_DATA)
    return PAPER_DATA[name]
