"""Normalisations of groups of channels that a file has written out, as calls of aten ops."""

from __future__ import annotations

from dataclasses import replace

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.lowering import Lowering

from ..written_norms import Written
from .rules import lower


def by_groups(low: Lowering, call: Call, x: Act, norm: Written) -> Act:
    """The normalisation of a map that has its channels in front.

    Tokens, each over its features, have a group for each as well.
    call  what names it; its arguments are the weight and bias, if there are any
    """
    each = len(x.dims) == 3 and norm.groups == x.dims[1]
    tokens = each and x.order is not None and low.shape(x)[2] == x.dims[2]
    about = {"normalized_shape": [x.dims[2]]} if tokens else {"num_groups": norm.groups}
    args = {"input": x, **about, **call.args, "eps": norm.epsilon, "gain": norm.gain}
    made: Act = lower(low, replace(call, op="layer_norm" if tokens else "group_norm", args=args))
    return made
