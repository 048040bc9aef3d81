"""Long studies on public data; none of it is part of the project."""
