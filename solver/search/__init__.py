"""
Branch and bound over candidates.

``search`` is the loop over candidates by best bound, on one process or several, ``refinement`` the steps that raise one
candidate's bound and find plans in it, ``standing`` the best plan so far and where each candidate stands, and
``order_refinement`` the steps of candidates that are priced by their order.
"""
