"""
The best plan by Galvatron's formula, and a lower bound on every plan of its space.

``packing`` is the dynamic program over layers and memory, ``one_stage`` the exact optimum without a pipeline,
``stages`` the bound with one, ``search`` the least of all settings.
"""
