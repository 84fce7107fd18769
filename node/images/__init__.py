"""Images of a request: from bytes to pixels."""
