"""
Other ways to a plan than the branch and bound, with the same prices and the same bound.

Begin with ``integer_program``: it chooses the strategy by CP-SAT or CBC, and places it as a quadratic assignment.
``options`` are the candidates as the program takes them, ``strategy_choice`` is the best of them, ``baselines`` are
planners of papers, and ``certified`` compares a method's plan with the bounds of the search.
"""
