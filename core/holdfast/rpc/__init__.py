"""Typed messages between the processes of a cluster, over Arrow Flight."""
