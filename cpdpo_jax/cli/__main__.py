"""`python -m cpdpo_jax.cli`."""

import sys

from cpdpo_jax.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
