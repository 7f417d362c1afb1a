"""The model, the data of a node, training and testing."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Sequential):
    """The layers of lenet5."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 4),
        )


def load_data(path: str, split: str, batch_size: int) -> DataLoader:
    """The training or test images of a node, normalised."""
    with np.load(path) as arrays:
        pixels, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    images = (torch.from_numpy(pixels).float() / 255 - 0.5) / 0.25
    data = TensorDataset(images, torch.from_numpy(labels).long())
    return DataLoader(data, batch_size=batch_size, shuffle=split == "train")


def train(net: nn.Module, loader: DataLoader, epochs: int, lr: float) -> float:
    """Train, and return the mean loss."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(loader))


def test(net: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """The mean loss and the accuracy."""
    criterion = nn.CrossEntropyLoss(reduction="sum")
    net.eval()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in loader:
            outputs = net(images)
            loss += criterion(outputs, labels).item()
            correct += int((outputs.argmax(1) == labels).sum())
    count = len(loader.dataset)
    return loss / count, correct / count
