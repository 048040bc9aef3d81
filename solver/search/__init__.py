"""
Branch and bound over candidates.

``search`` is the loop over candidates by best bound, ``refinement`` the steps that raise one candidate's bound and find
plans in it, ``incumbent`` the best plan so far, ``global_bound`` the bounds so far, ``order_adaptation`` the orders
adapted to a candidate's times, and ``without_plan`` what is left where no plan was found.
"""
