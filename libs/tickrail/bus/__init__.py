"""Kafka, behind the ports of core."""
