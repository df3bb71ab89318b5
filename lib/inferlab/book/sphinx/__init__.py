"""The book's own Sphinx extensions, all of them: `inferlab.book.sphinx` in `_config.yml`."""

from __future__ import annotations

from typing import Any

from inferlab.book.sphinx import (
    claim_ledger,
    claim_mark,
    equation,
    frame,
    landing,
    mathematics,
    run_inference,
)

__all__ = ["setup"]


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this once; each extension registers itself."""
    claim_ledger.setup(app)
    claim_mark.setup(app)
    equation.setup(app)
    frame.setup(app)
    landing.setup(app)
    mathematics.setup(app)
    run_inference.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
