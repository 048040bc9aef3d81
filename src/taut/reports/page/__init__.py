"""
A plan as one HTML page that needs no network.

Begin with ``page``. ``markup`` has the frame of a page; ``figures``, ``pipeline`` and ``placement`` draw SVG.
"""
