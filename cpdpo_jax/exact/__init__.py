"""The exact solution of a CMDP: optimum, multipliers and Slater margin by linear programs, with their certificate."""
