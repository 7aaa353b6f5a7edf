"""What runs on the driver: the coordinator and its endpoint."""
