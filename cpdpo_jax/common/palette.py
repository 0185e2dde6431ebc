"""Colours, markers and dashes of all figures: colour-blind safe and distinguishable in black and white.

A learner has one colour and one mark in every figure and page, whatever else is shown. No other learner of this package
has the same colour or mark with the same dash. If there are several hparams, dashes distinguish them; each constraint
has its own panel.
"""

from __future__ import annotations

import itertools
import zlib
from typing import Any, NamedTuple

COLOURS = (  # seven by Okabe and Ito, then three of Tol's muted scheme
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#882255", "#44AA99",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h", "<")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)), (0, (5, 1)), (0, (1, 1)))

LEARNERS = {  # this package's learners; the first ten have the colours that are the easiest to tell apart
    **dict(zip(("cpd_oppo", "cpdpo", "optprimaldual", "optdual", "optcmdp", "optpess_primaldual", "lp_optimal",
                "uniform", "uopt_rpgpd", "triple_q"), COLOURS, strict=True)),
    "podb": "#E7298A", "uob_reps": "#7570B3", "dope": "#AA4499", "opse": "#999933", "ghosh": "#117733",
    "regularized_primal_dual": "#332288", "unconstrained_optimal": "#66A61E", "optpess_lp": "#9030E0",
    "optcmdp_bonus": "#DDCC77", "cpd_oppo_free": "#661100", "cpdpo_past": "#CC6677", "bv_ops": "#A6761D",
    "s_ops": "#00838F",
}  # fmt: skip
OWN_DASHES = -(-len(LEARNERS) // len(MARKERS))  # dashes that distinguish these learners; others get the remaining ones


class LearnerStyle(NamedTuple):
    """Colour, marker and dash of a learner."""

    colour: str  # from LEARNERS
    mark: str  # from MARKERS
    dash: int  # position in DASHES, unless these tell hparams apart


def learner_style(learner: str) -> LearnerStyle:
    """The style of a learner, a function of its name alone: from the table above, else from a hash of the name.

    A hashed style has a colour and a mark that no learner of the table has together, and a dash that none has.
    """
    if learner in LEARNERS:
        again, i = divmod(list(LEARNERS).index(learner), len(MARKERS))
        return LearnerStyle(LEARNERS[learner], MARKERS[(i + again) % len(MARKERS)], again)
    taken = {learner_style(name)[:2] for name in LEARNERS}
    free = [pair for pair in itertools.product(LEARNERS.values(), MARKERS) if pair not in taken]
    rest, i = divmod(zlib.crc32(learner.encode()), len(free))
    return LearnerStyle(*free[i], OWN_DASHES + rest % (len(DASHES) - OWN_DASHES))
