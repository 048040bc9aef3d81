"""
Pictures of plans, frontiers and schedules, with matplotlib, and the page of a schedule, with plotly.

Begin with ``plan``. Each function takes a result and returns axes or HTML. It shows and writes nothing.
"""
