"""
The current configuration compared with the proven best.

Begin with ``compare``: it prices a stated configuration as it is, plans the same training, and prices the single
changes that gain most. ``compare_plans`` sets two plans side by side.
"""
