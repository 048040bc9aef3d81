"""
What Aceso (EuroSys 2024) measures of a model's operators, and the plans that its search found.

``operators`` reads the seconds and bytes of every operator, ``plans`` a table of published plans. Both keep what the
search of the paper works with; ``taut.formulations.aceso`` prices it.
"""
