"""The port `SecretRecords` on PostgreSQL: values go in encrypted and do not come out again.

Locks: a job that is created or changed shares the rows of the secrets it names until it commits
(`for key share`: a new value does not wait for it), a deletion holds the row (`for update`) and
looks for jobs after that. A job holds no secret's row while it waits for a job's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Text, bindparam, cast, delete, func, literal_column, select, text
from sqlalchemy.dialects.postgresql import JSONPATH, insert

from tickrail.core.on_failures import Channel, ChannelKind
from tickrail.core.secrets import SecretRecord
from tickrail.store.cipher import SecretCipher
from tickrail.store.tables import job_versions, jobs
from tickrail.store.tenancy import TenantTransaction
from tickrail.store.tenant_tables import secrets

_S = secrets.c
_J = jobs.c
_V = job_versions.c
_NO_CIPHER = SecretCipher(())
_PAGE = 200
_TARGET = _V.definition["target"]
_NOTIFY = _V.definition["on_failures"]
_MAY_NAME = func.jsonb_path_exists(
    _TARGET,
    cast(text("'$.**.secret ? (@ == $name)'"), JSONPATH),
    func.jsonb_build_object("name", cast(bindparam("name"), Text)),
) | func.coalesce(_NOTIFY["notify"].has_key(cast(bindparam("channel"), Text)), False)


class SecretTable:
    """Secrets of the transaction's tenant."""

    def __init__(self, tx: TenantTransaction, cipher: SecretCipher = _NO_CIPHER) -> None:
        self._tx = tx
        self._cipher = cipher

    def find(self, name: str, *, lock: bool = False, change: bool = False) -> SecretRecord | None:
        """The secret; `lock` and `change` hold its row until the transaction ends."""
        statement = select(_S.name, _S.updated_at).where(_S.name == name)
        if lock or change:
            statement = statement.with_for_update(key_share=not lock)
        row = self._tx.execute(statement).one_or_none()
        return None if row is None else SecretRecord(row.name, row.updated_at)

    def page(self, after: str, limit: int) -> Sequence[SecretRecord]:
        """Secrets by name, those after `after`."""
        rows = self._tx.execute(
            select(_S.name, _S.updated_at).where(_S.name > after).order_by(_S.name).limit(limit)
        )
        return [SecretRecord(r.name, r.updated_at) for r in rows]

    def missing(self, names: Sequence[str]) -> frozenset[str]:
        """Those of the names that are not there; the rows of the others are shared."""
        if not names:
            return frozenset()
        statement = select(_S.name).where(_S.name.in_(names)).order_by(_S.name)
        found = self._tx.execute(statement.with_for_update(read=True, key_share=True)).scalars()
        return frozenset(names) - frozenset(found)

    def put(self, name: str, value: bytes) -> bool:
        """Encrypt and keep a value; whether it is new.

        Raises:
            SetupError: this process has no key.
        """
        ciphertext = self._cipher.encrypt(self._tx.tenant, name, value)
        statement = insert(secrets).values(
            tenant_id=self._tx.tenant, name=name, ciphertext=ciphertext, updated_at=self._tx.now
        )
        made: bool = self._tx.execute(
            statement.on_conflict_do_update(
                index_elements=[_S.tenant_id, _S.name],
                set_={"ciphertext": ciphertext, "updated_at": self._tx.now},
            ).returning(literal_column("xmax = 0"))
        ).scalar_one()
        return made

    def delete(self, name: str) -> None:
        """Remove a secret; the row is held by the caller."""
        self._tx.execute(delete(secrets).where(_S.name == name))

    def definitions_with(self, name: str, after: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        """Some live jobs, by name and after `after`, that may name it: (name, definition)."""
        rows = self._tx.execute(
            select(_J.name, _TARGET.label("target"), _NOTIFY.label("on_failures"))
            .join(job_versions, (_V.job_id == _J.id) & (_V.version == _J.version))
            .where(_J.state != literal_column("'deleted'"), _J.name > after, _MAY_NAME)
            .order_by(_J.name)
            .limit(_PAGE),
            {"name": name, "channel": str(Channel(ChannelKind.WEBHOOK, name))},
        )
        return [(r.name, {"target": r.target, "on_failures": r.on_failures}) for r in rows]
