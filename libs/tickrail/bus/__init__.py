"""Kafka, behind the ports of core. Only this package imports confluent_kafka."""
