"""
Step time and memory of given configurations, and the fits that prices rest on.

``records`` holds :func:`taut.predict`; ``rows`` prices configurations together; ``fitting`` fits calibrations and
memory models to measured runs.
"""
