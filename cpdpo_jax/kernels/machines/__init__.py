"""Machine-dependent forms of the kernels for CPUs and accelerators, and the choice between them.

The modules one level up contain the paper's mathematics and are complete without this package. The table in `forms`
lists the other forms of each kernel; see README.md in this folder.
"""
