"""Real PostgreSQL, etcd and Kafka on this machine, from packages that pip installs.

`LocalStack` (stack.py) is the door: `tickrail up` and the tests start it.
"""
