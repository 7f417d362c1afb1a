"""Federated LoRA: a BERT whose adapters and head are trained and sent, and nothing else.

    pip install transformers peft
    python docs/examples/bert_lora.py

The BERT is built from a small configuration, so nothing is downloaded. For a pretrained one, call
BertForSequenceClassification.from_pretrained(NAME, num_labels=classes) instead.
"""

import numpy as np
from torch import Tensor, nn

import fedloom as fl

WORDS, LENGTH, TOPICS = 40, 8, 4


def texts(count: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Token numbers, padded with 0, and topics; each topic has words of its own."""
    draw = np.random.default_rng(0)
    topics = np.arange(count) % TOPICS
    own = (WORDS - 1) // TOPICS
    tokens = 1 + topics[:, None] * own + draw.integers(own, size=(count, LENGTH))
    lengths = draw.integers(3, LENGTH + 1, size=(count, 1))
    return np.where(np.arange(LENGTH) < lengths, tokens, 0), topics


class Masked(nn.Module):
    """A model of texts that does not attend to padding."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens, attention_mask=(tokens != 0).long())  # its logits are used


def bert(shape: tuple[int, ...], classes: int, lora: bool = True) -> nn.Module:
    """BERT with adapters in its attention; with lora=false all of it is trained."""
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=shape[0],
        num_labels=classes,
    )
    model = BertForSequenceClassification(config)
    if lora:
        model = get_peft_model(model, LoraConfig("SEQ_CLS", r=2, target_modules=["query", "value"]))
    return Masked(model)


if __name__ == "__main__":
    settings = {"kind": "text", "clients": 4, "per_round": 4, "rounds": 2, "partition": "iid"}
    for model in ("bert", "bert(lora=false)"):
        run = fl.Experiment("fedavg", f"{__file__}:{model}", texts(), **settings).run()
        first = run.history[0]
        print(f"{model:18} {first.bytes_up:>9,} bytes up, {first.bytes_down:>9,} down per round")
