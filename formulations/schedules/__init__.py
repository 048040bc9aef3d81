"""
Pipeline schedules: passes, orders, and the times that an order gives.

Begin with ``pipeline`` (the problem) and ``schedule`` (an order and its timetable). ``recurrence`` is the compiled
evaluator, ``orders`` the published kinds by formula. ``plan_orders`` says which of them a plan prices by their order,
and ``order_times`` what that order takes.
"""
