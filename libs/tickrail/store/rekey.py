"""Every secret under the first key: the middle step of a change of keys."""

from __future__ import annotations

from uuid import UUID

import psycopg

from tickrail.store.cipher import SecretCipher
from tickrail.store.errors import border

_BATCH = 500


def rekey_secrets(owner_url: str, cipher: SecretCipher) -> tuple[int, int]:
    """Encrypt anew what another than the first key encrypted; (done, had the first key already).

    In batches, each a transaction that holds its rows: a value that is set meanwhile stays as set.
    After an interruption the next run does the rest.

    Raises:
        SetupError: a secret cannot be decrypted with these keys; names it.
        UnavailableError: the database does not answer.
    """
    done = kept = 0
    after: tuple[UUID, str] = (UUID(int=0), "")
    with border(), psycopg.connect(owner_url, connect_timeout=5) as conn:
        while True:
            with conn.transaction():
                rows = conn.execute(
                    "select tenant_id, name, ciphertext from secrets"
                    " where (tenant_id, name) > (%s, %s) order by tenant_id, name limit %s"
                    " for update",
                    [*after, _BATCH],
                ).fetchall()
                for tenant, name, ciphertext in rows:
                    if cipher.is_current(ciphertext):
                        kept += 1
                        continue
                    value = cipher.decrypt(tenant, name, ciphertext)
                    conn.execute(
                        "update secrets set ciphertext = %s where tenant_id = %s and name = %s",
                        [cipher.encrypt(tenant, name, value), tenant, name],
                    )
                    done += 1
            if not rows:
                return done, kept
            after = rows[-1][0], rows[-1][1]
