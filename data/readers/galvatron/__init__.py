"""
What Galvatron (PKU-DAIR/Hetu-Galvatron) measures of a model and a node, and the plans that its search writes.

``costs`` makes a cost table of its times and activations; ``profile`` reads what its search works with, and a plan.
``taut.papers.galvatron`` prices plans as the search does.
"""
