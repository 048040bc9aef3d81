"""
Pipeline schedules as users ask for them: ``taut schedule``.

``portfolio`` is the entry: it compares the named kinds, bounds every placement and improves the best, or builds and
bounds one kind alone. ``space`` has the placements and kinds, ``found`` the result, its document and its words.
``reading`` has other files; ``verify`` checks one.
"""
