-- What a worker reads for the targets of its runs.

-- name: secrets
-- The encrypted values of a tenant's secrets.
select name, ciphertext from secrets where tenant_id = %(tenant)s and name = any(%(names)s::text[])

-- name: egress
-- What the targets of a tenant may reach.
select egress from tenants where id = %(tenant)s

-- name: kafka_topics
-- The topics that targets of a tenant may send to.
select kafka_topics from tenants where id = %(tenant)s
