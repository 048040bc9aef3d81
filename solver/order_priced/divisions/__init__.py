"""
Good divisions of the layers into the chunks of an order-priced candidate, never bounds.

Begin with ``local_search``: from simple divisions, those of ``bands``, it goes on by ``annealing`` and single steps.
"""
