"""
The strategy choice as an integer program.

``program`` states sets, variables and constraints, and builds the rows from options. A learned memory model is a table
in these rows.
"""
