"""
A plan as one HTML page that needs no network.

Begin with ``page``. Pages share ``frame`` and ``markup``; ``figures``, ``pipeline`` and ``placement`` draw SVG.
"""
