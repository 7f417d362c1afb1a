"""Loss terms and mixing functions that methods share, one module for each kind.

proximal_term, linear_term               terms of a loss over the weights
kl, teacher_logits, not_true_logits      distillation from a frozen teacher
contrastive_loss                         MOON's model-contrastive loss
with_one_hot_labels, interpolated        mixing of samples and labels
"""

from __future__ import annotations

from fedloom.core.lazy import lazy_exports

_EXPORTS = {
    "proximal_term": "fedloom.losses.terms",
    "linear_term": "fedloom.losses.terms",
    "kl": "fedloom.losses.distillation",
    "teacher_logits": "fedloom.losses.distillation",
    "not_true_logits": "fedloom.losses.distillation",
    "contrastive_loss": "fedloom.losses.contrastive",
    "with_one_hot_labels": "fedloom.losses.mixup",
    "interpolated": "fedloom.losses.mixup",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
