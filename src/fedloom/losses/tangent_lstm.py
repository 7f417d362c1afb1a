"""The tangents of an LSTM by hand: values and derivatives side by side in one recurrence, and another one for the way back.

    a = W x_t + U h_{t-1} + b,   i, f, o = sigmoid(a),   g = tanh(a),   c_t = f c_{t-1} + i g,   h_t = o tanh(c_t)

A pair is a value and its derivative along the direction; pairs multiply by (p, p') (q, q') = (p q, p q' + p' q). Going back, the
gradient by a derivative takes the way that gradients take in any LSTM; that by a value takes it too, and adds what the derivative
of the way makes of the other. Through a factor k, from c to a say,

    by a'  =  k (by c'),     by a  =  k (by c) + k' (by c')

so all that the way back needs are the factors, as pairs. A step is one product with U, for both halves of a pair, and a few
products of elements. Torch's own LSTM keeps its gates to itself and has no tangents; to differentiate it twice takes several times
as long, in many small steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

IN, FORGET, NEW, OUT, CELL, BENT, STATE = range(
    7
)  # gates i, f, g, o in the order of torch; c, tanh(c), h
_SIGMOID, _TANH = (
    torch.ops.aten.sigmoid_backward.grad_input,
    torch.ops.aten.tanh_backward.grad_input,
)
DOWN = 4  # the factor from a state to its cell, behind those to the gates


def simple(layer: nn.LSTM) -> bool:
    """Whether it is as written above: samples first, one layer, one direction, no projection."""
    return (
        layer.batch_first and layer.num_layers == 1 and not (layer.bidirectional or layer.proj_size)
    )


def states(layer: Any, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """The states of all steps of an LSTM, and their tangents; t may be one row for the whole batch."""
    bias = layer.bias_ih_l0 + layer.bias_hh_l0 if layer.bias else None
    a, along = (
        F.linear(x.transpose(0, 1), layer.weight_ih_l0, bias),
        F.linear(t.transpose(0, 1), layer.weight_ih_l0),
    )
    values, tangents = _Recurrence.apply(a, along.expand_as(a), layer.weight_hh_l0)  # type: ignore[no-untyped-call]
    return values.transpose(0, 1), tangents.transpose(0, 1)


class Pair(NamedTuple):
    """Both halves, (2, ...), and each: of values, or of gradients by them."""

    both: Tensor
    value: Tensor
    tangent: Tensor

    @staticmethod
    def of(t: Tensor) -> Pair:
        """Views of the halves."""
        return Pair(t, *t.unbind())


class Desk:
    """Where a step is computed, (2, B, places, width): one view of each place for all steps, as making them takes its time too."""

    def __init__(self, places: Tensor) -> None:
        rows = places.view(-1, *places.shape[2:])
        self.all, self.gates, self.state = places, rows[:, :CELL].view(len(rows), -1), rows[:, -1]
        self.doors, self.inner = Pair.of(places[:, :, :NEW]), Pair.of(places[:, :, :OUT])
        self.at = [Pair.of(place) for place in places.unbind(2)]


class _Recurrence(torch.autograd.Function):
    """From what the inputs give to the gates, (T, B, 4 width), and its tangent, to the states (T, B, width) and theirs."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, along: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        (steps, batch, _), width = a.shape, weight.shape[1]
        kept = a.new_empty(steps + 1, 2, batch, 7, width)
        kept[0] = 0  # before the first step
        now, last = (Desk(places) for places in a.new_zeros(2, 2, batch, 7, width))
        given, turned = torch.stack((a, along), 1).flatten(1, 2), weight.t()
        for inputs, keep in zip(given.unbind(), kept[1:].unbind(), strict=True):
            now, last = last, now
            torch.addmm(inputs, last.state, turned, out=now.gates)
            i, f, g, o, c, bent, h = now.at
            _sigmoid(now.doors)
            _sigmoid(o)
            _tanh(g, out=g)
            _product(f, last.at[CELL], out=c)
            _add_product(i, g, out=c)
            _tanh(c, out=bent)
            _product(o, bent, out=h)
            keep.copy_(now.all)
        ctx.save_for_backward(weight, kept)
        return kept[1:, 0, :, STATE], kept[1:, 1, :, STATE]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_values: Tensor, by_tangents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, kept = ctx.saved_tensors
        factors, by_states = _factors(kept), torch.stack((by_values, by_tangents), 1).flatten(1, 2)
        by_gates = torch.empty_like(factors[:, :, :, :CELL])
        way, by = Desk(torch.empty_like(factors[0])), Desk(torch.zeros_like(factors[0]))
        *_, o, c, h = by.at
        wide = Pair.of(c.both.unsqueeze(2))
        for factor, given, keep in zip(
            *(reversed(t.unbind()) for t in (factors, by_states, by_gates)), strict=True
        ):
            way.all.copy_(factor)
            torch.addmm(given, by.gates, weight, out=by.state)
            _add_back(way.at[DOWN], h, out=c)
            _back(way.inner, wide, out=by.inner)
            _back(way.at[OUT], h, out=o)
            _onward(way.at[-1], c)
            keep.copy_(by.all[:, :, :CELL])
        rows = by_gates.flatten(3)
        return rows[:, 0], rows[:, 1], rows.flatten(0, 2).t() @ kept[:-1, :, :, STATE].flatten(0, 2)


def _factors(kept: Tensor) -> Tensor:
    """Of all steps, as pairs: from the cell to the gates i, f, g; from the state to o and to the cell; from a cell to the last."""
    last, kept = kept[:-1, :, :, CELL], kept[1:]
    gates, bent = kept[:, :, :, :CELL], kept[:, :, :, BENT]
    (s, s_), (b, b_) = gates.unbind(1), bent.unbind(1)
    slope, curve = s * (1 - s), (1 - 2 * s) * s_
    slope[:, :, NEW], curve[:, :, NEW] = 1 - s[:, :, NEW] ** 2, -2 * s[:, :, NEW] * s_[:, :, NEW]
    partner, partner_ = torch.stack(
        (gates[:, :, :, NEW], last, gates[:, :, :, IN], bent), 3
    ).unbind(1)
    flat, (o, o_) = 1 - b * b, gates[:, :, :, OUT].unbind(1)
    found = torch.empty_like(kept[:, :, :, :6])
    torch.mul(slope, partner, out=found[:, 0, :, :DOWN])
    torch.mul(curve, partner, out=found[:, 1, :, :DOWN]).addcmul_(slope, partner_)
    found[:, 0, :, DOWN], found[:, 1, :, DOWN] = o * flat, o_ * flat - 2 * o * b * b_
    found[:, :, :, -1] = gates[:, :, :, FORGET]
    return found


def _sigmoid(p: Pair) -> None:
    p.value.sigmoid_()
    _SIGMOID(p.tangent, p.value, grad_input=p.tangent)


def _tanh(p: Pair, out: Pair) -> None:
    torch.tanh(p.value, out=out.value)
    _TANH(p.tangent, out.value, grad_input=out.tangent)


def _product(p: Pair, q: Pair, out: Pair) -> None:
    torch.mul(p.both, q.value, out=out.both)
    out.tangent.addcmul_(p.value, q.tangent)


def _add_product(p: Pair, q: Pair, out: Pair) -> None:
    out.both.addcmul_(p.both, q.value)
    out.tangent.addcmul_(p.value, q.tangent)


def _back(factor: Pair, by: Pair, out: Pair) -> None:
    torch.mul(by.both, factor.value, out=out.both)
    out.value.addcmul_(factor.tangent, by.tangent)


def _add_back(factor: Pair, by: Pair, out: Pair) -> None:
    out.both.addcmul_(by.both, factor.value)
    out.value.addcmul_(factor.tangent, by.tangent)


def _onward(factor: Pair, by: Pair) -> None:
    by.value.mul_(factor.value).addcmul_(factor.tangent, by.tangent)
    by.tangent.mul_(factor.value)
