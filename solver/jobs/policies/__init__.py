"""
Policies of cluster schedulers, each a small module from its paper, for ``taut.solver.jobs.simulate``.

``named`` lists them: begin there. They know what has arrived and nothing of what will.
"""
