"""What the model remembers of the tokens it has read: keys and values of every layer.

The cache is an object passed in. It owns the length of every sequence, the positions and the mask
of the next step, and its bytes; the model holds no state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inferlab.engine.kernels import causal_mask
from inferlab.theory.shapes import ModelShape


class KVCache:
    """A contiguous cache for B sequences of up to `max_tokens` tokens each.

    `kv`: (layers, B, 2K, max_tokens, E), the K heads of the keys before those of the values, so
    that a layer writes both at once; `k`, `v`: its halves, (layers, B, K, max_tokens, E).
    Bytes: 2·layers·B·K·max_tokens·E·(bytes per value).
    Sequences may differ in length: a step is told how many of its T tokens are real (`new`), the
    rest is padding on the right, which is neither stored nor seen. `passes` counts the forward
    passes made on the cache.
    """

    def __init__(
        self,
        shape: ModelShape,
        batch: int = 1,
        max_tokens: int = 512,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        if batch < 1 or max_tokens < 1:
            raise ValueError(
                f"a cache of {batch} sequences × {max_tokens} tokens was asked for: "
                "both must be at least 1"
            )
        if max_tokens > shape.max_context:
            raise ValueError(
                f"a cache of {max_tokens} tokens was asked for; {shape.name} was trained for "
                f"{shape.max_context}: pass max_tokens={shape.max_context} or less"
            )
        size = (shape.n_layers, batch, 2 * shape.n_kv_heads, max_tokens, shape.head_dim)
        self.kv = torch.zeros(size, dtype=dtype, device=device)
        self.k, self.v = self.kv.chunk(2, 2)
        self.batch, self.max_tokens, self.window = batch, max_tokens, shape.sliding_window
        self.lengths = [0] * batch
        self.passes = 0
        self._step: _Step | None = None

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.kv.numel() * self.kv.element_size()

    @property
    def nbytes_used(self) -> int:
        """Bytes that hold tokens."""
        return self.nbytes * sum(self.lengths) // (self.batch * self.max_tokens)

    def begin(self, tokens: Tensor, new: list[int] | None = None) -> tuple[Tensor, KVCache]:
        """Prepare a step over `tokens` (B, T), `new[b]` of which are real in sequence b.

        Returns the tokens to run and the cache to run them on: here both as they came.
        Raises ValueError when a sequence would not fit; the cache is then unchanged.
        """
        batch, width = tokens.shape
        new = [width] * batch if new is None else list(new)
        if batch != self.batch:
            raise ValueError(f"the cache holds {self.batch} sequences; the step has {batch}")
        if not all(0 < n <= width for n in new):
            raise ValueError(f"new={new}: each sequence brings 1 to {width} tokens to this step")
        longest = max(n + have for n, have in zip(new, self.lengths, strict=True))
        if longest > self.max_tokens:
            raise ValueError(
                f"the cache holds {self.max_tokens} tokens; {longest} were asked for: pass "
                f"max_tokens={longest} or more to KVCache"
            )
        self._step = _Step(self, width, new)
        return tokens, self

    @property
    def positions(self) -> Tensor:
        """(B, T): the position of each token of the step."""
        return self._step.positions

    @property
    def mask(self) -> Tensor | None:
        """(B or 1, 1, T, S), True where a query may look; None: nothing to mask but causality."""
        return self._step.mask

    @property
    def causal(self) -> bool:
        """Whether the step is a whole square of causal attention (S = T)."""
        return self._step.causal

    @property
    def last(self) -> list[int]:
        """For each sequence, the index within the step of its last real token."""
        return [n - 1 for n in self._step.new]

    def write(self, layer: int, kv: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values (B, 2K, T, E) of the step; returns k and v of all S tokens,
        (B, K, S, E) each.
        """
        step = self._step
        if step.even:
            step.slots[layer].copy_(kv)
        else:
            self.kv[layer][step.rows, :, step.places] = kv[step.rows, :, step.columns]
        return step.keys[layer], step.values[layer]

    def advance(self) -> None:
        """The step is done: its tokens count from now on."""
        self.lengths = [have + n for have, n in zip(self.lengths, self._step.new, strict=True)]
        self.passes += 1
        self._step = None

    def clear(self) -> None:
        """Forget all tokens."""
        self.lengths, self._step = [0] * self.batch, None


class NoCache:
    """Remembers the tokens and nothing of the work: every step runs the whole sequence again.

    For the experiment that shows what the cache saves. Same verbs as `KVCache`; a step over the
    n-th token costs a pass over n tokens.
    """

    def __init__(
        self,
        shape: ModelShape,
        batch: int = 1,
        max_tokens: int = 512,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        self.shape, self.batch, self.max_tokens = shape, batch, max_tokens
        self.dtype, self.device = dtype, device
        self._rows: list[list[int]] = [[] for _ in range(batch)]
        self.nbytes = self.nbytes_used = self.passes = 0

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self._rows]

    def begin(self, tokens: Tensor, new: list[int] | None = None) -> tuple[Tensor, KVCache]:
        """All tokens so far and the new ones, on a fresh cache that is dropped after the step."""
        width = tokens.shape[1]
        new = [width] * self.batch if new is None else list(new)
        rows = [
            have + row[:n] for have, row, n in zip(self._rows, tokens.tolist(), new, strict=True)
        ]
        total = max(map(len, rows))
        if total > self.max_tokens:
            raise ValueError(f"NoCache was made for {self.max_tokens} tokens; {total} were asked")
        fresh = KVCache(self.shape, self.batch, total, self.dtype, self.device)
        padded = torch.tensor([row + [0] * (total - len(row)) for row in rows], device=self.device)
        out = fresh.begin(padded, [len(row) for row in rows])
        self._rows = rows
        self.passes += 1
        return out

    def clear(self) -> None:
        """Forget all tokens."""
        self._rows = [[] for _ in range(self.batch)]


class _Step:
    """Where the tokens of one step go, and what they may see."""

    def __init__(self, cache: KVCache, width: int, new: list[int]):
        device, starts = cache.k.device, cache.lengths
        self.new = new
        self.start = starts[0]
        self.stop = max(n + have for n, have in zip(new, starts, strict=True))
        self.even = len(set(starts)) == 1 and len(set(new)) == 1 and new[0] == width
        # the views of all layers at once: made one by one they cost more than what is copied
        self.slots = cache.kv[:, :, :, self.start : self.start + width].unbind(0)
        self.keys = cache.k[:, :, :, : self.stop].unbind(0)
        self.values = cache.v[:, :, :, : self.stop].unbind(0)
        offsets = torch.arange(width, device=device)
        if self.even:
            self.positions = (offsets + self.start).expand(cache.batch, width)
        else:
            first = torch.tensor(starts, device=device)
            self.positions = first[:, None] + offsets
            real = offsets < torch.tensor(new, device=device)[:, None]  # (B, T)
            self.rows, self.columns = real.nonzero(as_tuple=True)
            self.places = self.positions[self.rows, self.columns]
        self.causal = self.even and self.start == 0 and width > 1
        self.mask = self._mask(width, cache.window, device)

    def _mask(self, width: int, window: int | None, device: torch.device) -> Tensor | None:
        narrow = window is not None and self.stop > window
        if self.even and not narrow:
            if self.causal or width == 1:
                return None
            return causal_mask(width, self.stop, device)[None, None]
        keys = torch.arange(self.stop, device=device)
        mask = keys <= self.positions[..., None]  # (B, T, S)
        if narrow:
            mask &= keys > self.positions[..., None] - window
            self.causal = False
        return mask[:, None]
