"""
Order-priced candidates, whose pipeline time is the makespan of their order of passes: bounds and divisions.

Begin with ``bound``. It bounds every division by ``capacity`` (a destructive bound) and by Lagrangian relaxation:
``master_rows`` has the dual function, ``dual_ascent`` maximises it with a restricted master problem, ``pricing`` and
``device_options`` solve the pricing problem, and ``branch_and_bound`` raises the bound in branches. Under interleaved
1F1B ``staircases`` are its longest paths in closed form, by which ``layer_bounds`` and ``layer_tree`` bound divisions.
``witness`` checks bounds. ``divisions`` finds good divisions, ``adapt`` orders.
"""
