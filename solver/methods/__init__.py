"""
Other ways to a plan than the branch and bound, in one price model, each under the same bound.

``integer_program`` chooses the strategy by CP-SAT or CBC and places it as a quadratic assignment: begin there.
``options`` are the candidates as the program takes them, ``strategy_choice`` the best of them; ``baselines`` are other
planners, written from their papers. ``certified`` holds a plan of any of them against the bounds of the search.
"""
