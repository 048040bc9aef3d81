"""
A plan as one HTML page that needs no network.

Begin with ``page``. ``markup`` has the frame of a page and its shapes; ``figures`` draws SVG.
"""
