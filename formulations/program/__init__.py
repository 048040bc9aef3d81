"""
The strategy choice as an integer program.

``program`` states sets, variables and constraints; ``rows`` builds its rows from a planning problem. A learned
memory model is a table in these rows.
"""
