"""
Policies of cluster schedulers, each a small module from its paper, for ``taut.solver.jobs.simulate``.

Begin with ``first_come``, the simplest two. Policies know what has arrived and nothing of what will.
"""
