"""What is known: models, clusters, costs, and the readers of other tools' files."""
