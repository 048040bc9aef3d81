"""
Pipeline schedules as users ask for them: ``taut schedule``.

``portfolio`` is the entry: it compares the named kinds, bounds every placement and improves the best. ``published``
builds and bounds one kind alone. ``space`` has the placements and kinds, ``found`` the result, ``summary`` its words.
``document``, ``torch_csv`` and ``reading`` are the files; ``verify`` checks one.
"""
