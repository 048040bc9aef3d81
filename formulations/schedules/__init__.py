"""
Pipeline schedules: passes, orders, and the times that an order gives; nothing here knows a model or a cluster.

Begin with ``schedule`` (the problem, an order and its timetable). ``recurrence`` is the compiled evaluator, ``orders``
the published kinds by formula, and which of them a plan prices by their order (``taut.formulations.order_division``).
"""
