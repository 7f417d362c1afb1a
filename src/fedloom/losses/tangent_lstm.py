"""Forward-mode derivatives of an LSTM, with a hand-written backward pass.

    a = W x_t + U h_{t-1} + b,   i, f, o = sigmoid(a),   g = tanh(a)
    c_t = f c_{t-1} + i g,       h_t = o tanh(c_t)

A pair (p, p') is a value and its derivative along the direction. Pairs multiply as
(p, p') (q, q') = (p q, p q' + p' q). In the backward pass, the gradient with respect to a tangent
propagates as gradients do in any LSTM. The gradient with respect to a value does so too, plus a
contribution of the tangent's gradient through the derivative of each factor. For a factor k, for
example from c to a,

    grad a'  =  k (grad c'),     grad a  =  k (grad c) + k' (grad c')

so the backward pass needs only the factors, as pairs. Each time step is one product with U for both
halves of a pair, and a few elementwise products. PyTorch's own LSTM does not expose its gates and
has no forward-mode derivative; differentiating it twice takes several times as long, in many small
operations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# What a time step stores: the gates i, f, g, o in torch's order, then c, tanh(c) and h.
IN, FORGET, NEW, OUT, CELL, TANH_CELL, STATE = range(7)
_SIGMOID_BACKWARD = torch.ops.aten.sigmoid_backward.grad_input
_TANH_BACKWARD = torch.ops.aten.tanh_backward.grad_input
TO_CELL = 4  # index of the factor from a state to its cell, after those to the four gates


def is_supported(layer: nn.LSTM) -> bool:
    """Whether the LSTM has the form above: batch first, one layer, one direction, no projection."""
    return (
        layer.batch_first and layer.num_layers == 1 and not (layer.bidirectional or layer.proj_size)
    )


def states(layer: Any, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """The LSTM's states of all time steps, and their tangents; t may be one row for the batch."""
    bias = layer.bias_ih_l0 + layer.bias_hh_l0 if layer.bias else None
    a = F.linear(x.transpose(0, 1), layer.weight_ih_l0, bias)
    a_tangent = F.linear(t.transpose(0, 1), layer.weight_ih_l0).expand_as(a)
    values, tangents = _Recurrence.apply(  # type: ignore[no-untyped-call]
        a, a_tangent, layer.weight_hh_l0
    )
    return values.transpose(0, 1), tangents.transpose(0, 1)


class Pair(NamedTuple):
    """Values and tangents, or gradients with respect to both: stacked, (2, ...), and each half."""

    both: Tensor
    value: Tensor
    tangent: Tensor

    @staticmethod
    def of(t: Tensor) -> Pair:
        """Views of the halves."""
        return Pair(t, *t.unbind())


class StepBuffer:
    """Buffer (2, B, entries, width) in which one time step is computed.

    Its views are made once and reused by all time steps, since making them takes time too.
    """

    def __init__(self, entries: Tensor) -> None:
        rows = entries.view(-1, *entries.shape[2:])
        self.all = entries
        self.gates, self.state = rows[:, :CELL].view(len(rows), -1), rows[:, -1]
        self.input_forget = Pair.of(entries[:, :, :NEW])
        self.input_forget_new = Pair.of(entries[:, :, :OUT])
        self.at = [Pair.of(entry) for entry in entries.unbind(2)]


class _Recurrence(torch.autograd.Function):
    """The recurrence: from the inputs' part of a, (T, B, 4 width), to the states (T, B, width).

    Takes and returns values and tangents.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, a_tangent: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        (steps, batch, _), width = a.shape, weight.shape[1]
        saved = a.new_empty(steps + 1, 2, batch, 7, width)
        saved[0] = 0  # before the first step
        now, last = (StepBuffer(entries) for entries in a.new_zeros(2, 2, batch, 7, width))
        from_inputs, weight_t = torch.stack((a, a_tangent), 1).flatten(1, 2), weight.t()
        for from_input, save in zip(from_inputs.unbind(), saved[1:].unbind(), strict=True):
            now, last = last, now
            torch.addmm(from_input, last.state, weight_t, out=now.gates)
            i, f, g, o, c, tanh_c, h = now.at
            _sigmoid(now.input_forget)
            _sigmoid(o)
            _tanh(g, out=g)
            _product(f, last.at[CELL], out=c)
            _add_product(i, g, out=c)
            _tanh(c, out=tanh_c)
            _product(o, tanh_c, out=h)
            save.copy_(now.all)
        ctx.save_for_backward(weight, saved)
        return saved[1:, 0, :, STATE], saved[1:, 1, :, STATE]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_values: Tensor, grad_tangents: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        weight, saved = ctx.saved_tensors
        factors = _factors(saved)
        grad_states = torch.stack((grad_values, grad_tangents), 1).flatten(1, 2)
        grad_gates = torch.empty_like(factors[:, :, :, :CELL])
        factor = StepBuffer(torch.empty_like(factors[0]))
        grad = StepBuffer(torch.zeros_like(factors[0]))
        *_, o, c, h = grad.at
        c_for_gates = Pair.of(c.both.unsqueeze(2))
        backwards = (reversed(t.unbind()) for t in (factors, grad_states, grad_gates))
        for step_factors, grad_state, save in zip(*backwards, strict=True):
            factor.all.copy_(step_factors)
            torch.addmm(grad_state, grad.gates, weight, out=grad.state)
            _add_back(factor.at[TO_CELL], h, out=c)
            _back(factor.input_forget_new, c_for_gates, out=grad.input_forget_new)
            _back(factor.at[OUT], h, out=o)
            _back_in_place(factor.at[-1], c)
            save.copy_(grad.all[:, :, :CELL])
        rows = grad_gates.flatten(3)
        last_states = saved[:-1, :, :, STATE].flatten(0, 2)
        return rows[:, 0], rows[:, 1], rows.flatten(0, 2).t() @ last_states


def _factors(saved: Tensor) -> Tensor:
    """The factors of all time steps, as pairs.

    In this order: from the cell to the gates i, f and g; from the state to the gate o and to the
    cell; from the cell to the previous cell.
    """
    last_cell, saved = saved[:-1, :, :, CELL], saved[1:]
    gates, tanh_cell = saved[:, :, :, :CELL], saved[:, :, :, TANH_CELL]
    (s, s_), (b, b_) = gates.unbind(1), tanh_cell.unbind(1)
    # The derivative of each gate's activation, and the tangent of that derivative.
    slope, curve = s * (1 - s), (1 - 2 * s) * s_
    slope[:, :, NEW], curve[:, :, NEW] = 1 - s[:, :, NEW] ** 2, -2 * s[:, :, NEW] * s_[:, :, NEW]
    # What each gate is multiplied by in the forward pass: i by g, f by c, g by i, o by tanh(c).
    multiplied = (gates[:, :, :, NEW], last_cell, gates[:, :, :, IN], tanh_cell)
    partner, partner_ = torch.stack(multiplied, 3).unbind(1)
    tanh_slope, (o, o_) = 1 - b * b, gates[:, :, :, OUT].unbind(1)
    factors = torch.empty_like(saved[:, :, :, :6])
    torch.mul(slope, partner, out=factors[:, 0, :, :TO_CELL])
    torch.mul(curve, partner, out=factors[:, 1, :, :TO_CELL]).addcmul_(slope, partner_)
    factors[:, 0, :, TO_CELL] = o * tanh_slope
    factors[:, 1, :, TO_CELL] = o_ * tanh_slope - 2 * o * b * b_
    factors[:, :, :, -1] = gates[:, :, :, FORGET]
    return factors


def _sigmoid(p: Pair) -> None:
    p.value.sigmoid_()
    _SIGMOID_BACKWARD(p.tangent, p.value, grad_input=p.tangent)


def _tanh(p: Pair, out: Pair) -> None:
    torch.tanh(p.value, out=out.value)
    _TANH_BACKWARD(p.tangent, out.value, grad_input=out.tangent)


def _product(p: Pair, q: Pair, out: Pair) -> None:
    torch.mul(p.both, q.value, out=out.both)
    out.tangent.addcmul_(p.value, q.tangent)


def _add_product(p: Pair, q: Pair, out: Pair) -> None:
    out.both.addcmul_(p.both, q.value)
    out.tangent.addcmul_(p.value, q.tangent)


def _back(factor: Pair, grad: Pair, out: Pair) -> None:
    """Propagate gradients back through a factor."""
    torch.mul(grad.both, factor.value, out=out.both)
    out.value.addcmul_(factor.tangent, grad.tangent)


def _add_back(factor: Pair, grad: Pair, out: Pair) -> None:
    out.both.addcmul_(grad.both, factor.value)
    out.value.addcmul_(factor.tangent, grad.tangent)


def _back_in_place(factor: Pair, grad: Pair) -> None:
    grad.value.mul_(factor.value).addcmul_(factor.tangent, grad.tangent)
    grad.tangent.mul_(factor.value)
