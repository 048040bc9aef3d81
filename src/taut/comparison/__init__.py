"""
The current configuration compared with the proven best.

Begin with ``compare``: it prices a stated configuration as it is, plans the same training, and prices the single
changes that gain most. ``result`` has what it returns, and sets two plans side by side.
"""
