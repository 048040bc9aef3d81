"""
Pipeline schedules as users ask for them: ``taut schedule``.

``portfolio`` is the entry: it compares the named kinds, bounds every placement and improves the best, or builds and
bounds one kind alone. ``found`` has the result, its document, its words and its check; ``reading`` has other files.
"""
