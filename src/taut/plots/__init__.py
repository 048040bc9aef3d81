"""
Pictures of plans, frontiers and schedules, drawn with matplotlib, and the page of a schedule, drawn with plotly.

Each function takes a result and returns axes or HTML; nothing is shown or written. Begin with ``plan``.
"""
