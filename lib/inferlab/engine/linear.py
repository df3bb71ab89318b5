"""y = x·Wᵀ + b, the weight held as its kernel reads it; `kernels` says which kernel that is."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class Linear:
    """y = x·Wᵀ + b, the weight held plain (out, in), in oneDNN's blocked layout, or in both."""

    __slots__ = ("bias", "packed", "plain", "rows")

    def __init__(self, weight: Tensor, bias: Tensor | None, kinds: set[str]):
        self.rows, self.bias = weight.shape[0], bias
        self.packed = pack(weight) if "packed" in kinds else None
        self.plain = weight if kinds - {"packed"} or self.packed is None else None

    def __call__(self, x: Tensor, kind: str) -> Tensor:  # (..., in) -> (..., out)
        if kind == "packed":
            return torch.ops.mkldnn._linear_pointwise.default(
                x, self.packed, self.bias, "none", [], ""
            )
        if kind == "native" and x.numel() == x.shape[-1]:  # inside `switches`; called as a row
            row = x.reshape(-1)
            bias = self.bias
            y = torch.mv(self.plain, row) if bias is None else torch.addmv(bias, self.plain, row)
            return y.view(*x.shape[:-1], self.rows)
        return F.linear(x, self.plain, self.bias)

    @property
    def weight(self) -> Tensor:
        """The plain (out, in) matrix; unpacked into a new tensor where only the blocked one is."""
        return self.plain if self.plain is not None else self.packed.to_dense()


def pack(weight: Tensor) -> Tensor:
    """`weight` (out, in) in oneDNN's blocked layout, ready for few rows as for many."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 16)


class switches:  # noqa: N801 - a context manager, used as a function
    """oneDNN off while "native" products run, and put back: a process-wide switch, so it is set
    inside one step and never across a yield.
    """

    def __init__(self, linear: str):
        self._wanted = False if linear == "native" else None

    def __enter__(self) -> None:
        self._before = torch._C._get_mkldnn_enabled()
        if self._wanted is not None:
            torch._C._set_mkldnn_enabled(self._wanted)

    def __exit__(self, *error: object) -> None:
        torch._C._set_mkldnn_enabled(self._before)
