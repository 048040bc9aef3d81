"""
Pipeline schedules as users ask for them: ``taut schedule``.

``portfolio`` is the entry: it compares the named kinds, bounds every placement and improves the best. ``published``
builds and bounds one kind alone. ``space`` has the placements and kinds, ``found`` the result and its document,
``summary`` its words. ``torch_csv`` and ``reading`` are other files; ``verify`` checks one.
"""
