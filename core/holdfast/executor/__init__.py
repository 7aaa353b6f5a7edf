"""What runs on an executor: the state host, and the client through which tasks use it."""
