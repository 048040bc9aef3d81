"""
Branch and bound over candidates.

``search`` is the loop over candidates by best bound, ``refinement`` the steps that raise one candidate's bound and find
plans in it, ``incumbent`` the best plan so far, and ``order_adaptation`` the orders adapted to a candidate's times.
"""
