"""Tickrail: a sharded, multi-tenant job scheduling platform on Kafka, etcd and PostgreSQL."""

__version__ = "0.1.0"
