"""
Published searches and plans beside the proven optimum, from tables of other projects.

Begin with ``table``, which sets all that a folder holds side by side. ``published_plans`` reads plans that
ran; ``aceso`` and ``galvatron`` price searches by their own formulas first.
"""
