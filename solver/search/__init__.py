"""
Branch and bound over candidates.

``search`` is the loop over candidates by best bound, ``refinement`` the steps that raise one candidate's bound and find
plans in it, ``standing`` the best plan so far and where each candidate stands, ``conclusion`` the bounds so far, and
``order_refinement`` the steps of candidates that are priced by their order.
"""
