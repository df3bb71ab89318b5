"""`inferlab.theory` is light: what it imports is checked by name, not by the clock."""

import json
import subprocess
import sys

MODULES = ["units", "tensors", "shapes", "hardware", "counts", "roofline", "latency", "economics"]
MODULES += ["notation", "equations", "formulas"]
HEAVY = {"torch", "pandas", "pint", "scipy", "numpy", "sympy", "matplotlib", "transformers"}


def test_theory_imports_no_heavy_package():
    code = (
        f"import json, sys; [__import__('inferlab.theory.' + m) for m in {MODULES}]; "
        "from inferlab.theory import shapes; shapes.names(); "
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(json.loads(run.stdout))
