"""What runs today beside the best plan."""
