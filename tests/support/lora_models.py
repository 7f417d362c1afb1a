"""Transformers with low-rank adapters, as users write them, and texts to train them on."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, LENGTH, CLASSES = 40, 6, 4


class LoraLinear(nn.Module):
    """W x + B A x. W is frozen; A and B, of low rank, are trained (Hu et al. 2022)."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.a, self.b = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.b(self.a(x))


class Layer(nn.Module):
    """Attention with adapters, returned as a tuple."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.query, self.value = LoraLinear(width, rank), LoraLinear(width, rank)
        self.norm = nn.LayerNorm(width).requires_grad_(False)
        self.drop = nn.Dropout(0.1)

    def forward(self, h: Tensor) -> tuple[Tensor, None]:
        weights = (self.query(h) @ h.transpose(1, 2)).softmax(-1)
        return self.norm(h + self.drop(weights @ self.value(h))), None


class Encoder(nn.Module):
    """A small transformer that returns an object with logits."""

    def __init__(self, classes: int, width: int = 16, layers: int = 2, rank: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width).requires_grad_(False)
        self.places = nn.Embedding(LENGTH, width).requires_grad_(False)
        self.layers = nn.ModuleList([Layer(width, rank) for _ in range(layers)])
        self.classifier = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Any:
        h = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            h = layer(h)[0]
        return SimpleNamespace(loss=None, logits=self.classifier(h.mean(1)))


def by_hand(shape: tuple[int, ...], classes: int, lora: bool = True) -> nn.Module:
    """Adapters and head are trained; everything without lora."""
    model = Encoder(classes)
    return model if lora else model.requires_grad_(True)


def bert(shape: tuple[int, ...], classes: int, lora: bool = True) -> nn.Module:
    """BERT from a configuration, without a download, with the adapters of peft."""
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=LENGTH, num_labels=classes,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    if not lora:
        return model
    return get_peft_model(model, LoraConfig("SEQ_CLS", r=2, target_modules=["query", "value"]))


def texts(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Token ids and labels; the words of a class come from its own part of the vocabulary."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    words = torch.randint(VOCABULARY // CLASSES, (count, LENGTH), generator=draw)
    return words + labels[:, None] * (VOCABULARY // CLASSES), labels
