"""Colours, dashes and markers of all figures: colour-blind safe, and told apart in black and white too."""

from __future__ import annotations

COLOURS = (  # the seven of Okabe and Ito, then three of Tol's muted ones
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#882255", "#44AA99",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h", "<")
DASHES = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)), (0, (5, 1)), (0, (1, 1)))
