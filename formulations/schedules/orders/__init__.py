"""
Orders of the published schedules by formula, with their papers.

``classic`` has GPipe, 1F1B, interleaved 1F1B, ZB-H1 and ZB-H2, ``vshape`` ZB-V and DualPipeV,
``block`` the building blocks of V-Min and V-Half; ``words`` writes an order as text and reads it.
"""
