"""The ratio figure: every point is in its data, and it says what is seen."""

import pytest

from inferlab.lab.plots_scatter import Cloud, ratios

CLOUDS = [
    Cloud("roofline", [0.01, 1.0], [0.005, 0.4], ["decode", "prefill"], filled=False),
    Cloud("additive", [0.01, 1.0], [0.011, 0.95], ["decode", "prefill"]),
]


def test_points_and_data():
    made = ratios(CLOUDS, x_label="published", alt="Four points, two of them near one.")
    assert len(made.data) == 4
    assert {row["prediction"] for row in made.data} == {"roofline", "additive"}
    assert "decode, additive" in made.wide
    assert made.wide.count("var(--il-decode") > 1
    with pytest.raises(ValueError, match="alt"):
        ratios(CLOUDS, x_label="published", alt="points")


def test_clouds_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        ratios(
            [Cloud("x", [1.0, 2.0], [1.0], ["decode"])], x_label="t", alt="one two three four five"
        )
