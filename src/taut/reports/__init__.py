"""
Results in words for a terminal, a module for each result.

Begin with ``plan``. ``proof`` says what a bound covers, ``alternatives`` lists the next best candidates,
``sensitivity`` what errors of prices cost, and ``text_table`` aligns columns. ``page`` writes a plan as HTML.
"""
