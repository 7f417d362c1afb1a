"""A user's model with a frozen layer, for tests on any engine."""

from torch import nn

FROZEN = ("model.frozen.fc.weight", "model.frozen.fc.bias", "model.frozen.norm.weight",
          "model.frozen.norm.bias")  # fmt: skip


def net(frozen: bool = True, norm: bool = True) -> nn.Module:
    """Three layers, of which the middle one is frozen."""
    layers: dict[str, nn.Module] = {"fc": nn.Linear(6, 5)}
    if norm:
        layers["norm"] = nn.BatchNorm1d(5)
    middle = nn.Sequential()
    for name, layer in layers.items():
        middle.add_module(name, layer)
    model = nn.Sequential()
    for name, layer in (
        ("flatten", nn.Flatten()),
        ("first", nn.Linear(64, 6)),
        ("frozen", middle),
        ("relu", nn.ReLU()),
        ("last", nn.Linear(5, 4)),
    ):
        model.add_module(name, layer)
    if frozen:
        middle.requires_grad_(False)
    return model
