"""Real PostgreSQL, etcd and Kafka on this machine, from packages that pip installs."""
