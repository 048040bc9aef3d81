"""The verb ``taut jobs``: ``command`` holds it."""
