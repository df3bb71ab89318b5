"""The names of a notebook: at most 25, each there, each imported only when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import inferlab


def test_there_are_at_most_25_and_each_is_there():
    assert len(inferlab.__all__) <= 25
    for name in inferlab.__all__:
        assert getattr(inferlab, name) is not None
        assert name in dir(inferlab)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        inferlab.nonsense  # noqa: B018


def test_the_package_itself_imports_no_torch():
    code = "import inferlab, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
