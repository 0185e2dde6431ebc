"""All sizes at which a form, a loop or the division into blocks changes; `forms` and README.md say what they do."""

from __future__ import annotations

MAX_UNROLLED_STATES = 8  # up to this width, sums over pairs of next states are unrolled
MAX_BREAKPOINTS = 10  # up to this width, breakpoints are unrolled; wider layers loop over them
MAX_UNROLLED_TERMS = 4000  # layers x actions x states^2 of an unrolled recursion: 10 x 10 x 4 compiles in 8 s
MAX_SCAN_UNROLLED_STATES = 32  # the scan over layers is unrolled up to this width; see `loops.scan_layers_backwards`
MAX_XLA_STATES = 7  # wider layers use numba's counts and evaluations (CPD-OPPO at 8 x 8 x 4: 0.72 of the time)
MAX_ACCELERATOR_STATES = 16  # up to this width, accelerators have their own forms
MAX_VALUE_TERMS = 256  # products of a value function that are unrolled in one launch
MAX_PATH_TERMS = 512  # pairs x next states of a path sampled in one launch
SIMD_LANES = 16  # lanes of a vector in numba's code
SORTED_LANES = 8  # lanes whose boxes numba copies together, to read whole cache lines of lanes-last arrays
LANE_MULTIPLE = 32  # blocks are padded to multiples of it; a user's learner may round differently with 16 lanes
CPU_LANES = 64  # lanes of a block on a CPU: with 32 a lane costs up to half more, with 128 no less
CPU_COUNT_BYTES = 2**23  # counts that fit a CPU's caches; beyond that, 32 lanes halve the time per lane
ACCELERATOR_LANES = 4096  # lanes of a block on an accelerator
HOST_LANES = 4  # maximum lanes of a block on the host: few, so that all cores finish together
ACCELERATOR_LOOP_LENGTH = 64  # episodes of the inner loop of known length; the host synchronises once per loop
