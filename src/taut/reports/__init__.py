"""
Results in words for a terminal, a module for each result.

Begin with ``plan``. ``proof`` says what a bound covers, ``alternatives`` lists the next best candidates, and
``sensitivity`` says what errors of prices cost. ``page`` writes a plan as HTML.
"""
