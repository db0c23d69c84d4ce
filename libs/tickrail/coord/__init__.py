"""etcd, behind the ports of core."""
