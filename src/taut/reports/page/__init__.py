"""A plan as one HTML page that needs no network: its figures as SVG, its candidates as a table to sort and filter."""
