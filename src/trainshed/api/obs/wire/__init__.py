"""The HTTP/1.1 server of the object store."""
