"""`python -m cpdpo_jax.cli`."""

import sys

from cpdpo_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
