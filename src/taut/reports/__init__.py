"""
Results in words for a terminal, a module for each result.

Begin with ``plan_details``, what stands beside a plan's own words (``taut.planning.summary``), such as the next best
candidates. ``sensitivity`` says what errors of prices cost. ``page`` writes a plan as HTML.
"""
