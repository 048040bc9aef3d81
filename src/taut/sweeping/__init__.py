"""
Sweeps: many points, each a plan, a prediction or a simulation, on all cores or many machines, resumable after a kill.

``sweep`` holds :func:`taut.sweep`: begin there. ``spec`` reads what is asked for and expands it into points, ``point``
makes each one whole and names it by its content, ``row`` solves one, ``journal`` keeps what is done, ``executors``
says where points run, ``table`` writes the result.
"""
