"""Many jobs made by one request: each is valid or not by itself, all are stored together.

Every document goes through the use case of one job. What that use case asks of the database is
asked once for all of them, and what it writes is gathered and written in a few statements: with a
round trip for each row, a thousand jobs would take as long as a thousand requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from tickrail.core.calendars import Calendar
from tickrail.core.definition import Definition, Plan
from tickrail.core.documents import Reader, type_name
from tickrail.core.errors import InvalidInputError, TickrailError
from tickrail.core.ids import JobId
from tickrail.core.ports_api import AuditEntry, JobRecord, Transaction
from tickrail.core.quotas import Reached
from tickrail.engine.job_checks import name_taken
from tickrail.engine.jobs import Draft, Jobs

MAX_BATCH: Final = 1000
"""So many jobs one request may hold."""
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Created:
    """A job of the request, and the plan that its document holds."""

    job: JobRecord
    plan: Plan


@dataclass(frozen=True, slots=True)
class Batch:
    """The documents of a request, each validated; `drafts` in their order."""

    drafts: Sequence[Draft | TickrailError]
    dry_run: bool

    @property
    def queues(self) -> frozenset[str]:
        """Those that the valid ones name."""
        return frozenset(d.definition.plan.queue for d in self.drafts if isinstance(d, Draft))


def read_batch(jobs: Jobs, document: object, egress: Mapping[str, Any] | None) -> Batch:
    """Read a request; before the transaction, since a thousand documents take a while.

    Raises:
        InvalidInputError: the request itself is not valid; what is wrong with one of its jobs is
            that job's result.
    """
    reader = Reader(document)
    dry_run = reader.flag("dry_run", default=False)
    found = reader.raw("jobs")
    expected = f"an array of 1 to {MAX_BATCH} jobs"
    if found is None:
        reader.problem("jobs", "is missing", expected)
    elif not isinstance(found, list):
        reader.problem("jobs", f"is {type_name(found)}", expected)
    elif not 1 <= len(found) <= MAX_BATCH:
        reader.problem("jobs", f"has {len(found)} entries", expected)
    reader.finish("batch")
    check = jobs.batch_check(egress)
    drafts: list[Draft | TickrailError] = []
    for n, one in enumerate(found):
        try:
            drafts.append(jobs.draft(one, egress, check))
        except InvalidInputError as e:
            drafts.append(placed(e, n))
    return Batch(drafts, dry_run)


def create_batch(tx: Transaction, jobs: Jobs, batch: Batch) -> Sequence[Created | TickrailError]:
    """Store the jobs of a request that can be stored; one result each, in order.

    A dry run stores nothing and answers the same, except that another request may take a name in
    between.

    Raises:
        InProgressError: a calendar that one of them names is being changed at this moment.
    """
    drafts = [d for d in batch.drafts if isinstance(d, Draft)]
    gathering = _Gathering(tx, drafts)
    items: list[Created | TickrailError] = []
    for n, draft in enumerate(batch.drafts):
        if not isinstance(draft, Draft):
            items.append(draft)
            continue
        try:
            # It has all that the use case asks for: the rest is the transaction's own.
            job = jobs.create(cast("Transaction", gathering), draft)
        except TickrailError as e:
            if e.status >= _SERVER_ERROR:
                raise
            items.append(placed(e, n))
        else:
            items.append(Created(job, draft.definition.plan))
    if batch.dry_run:
        return items
    made = gathering.write()
    return [
        placed(name_taken(item.job.name), n)
        if isinstance(item, Created) and item.job.id not in made
        else item
        for n, item in enumerate(items)
    ]


def placed(error: TickrailError, n: int) -> TickrailError:
    """The error of one job, its pointers those of the whole request."""
    problems = [replace(p, pointer=f"/jobs/{n}{p.pointer}") for p in error.problems]
    return type(error)(error.detail, problems)


class _Gathering:
    """`Transaction` for the creation of many jobs: answers from what was read once, keeps writes.

    Rows are shared in the order of their names, before any job is written: so two such requests
    cannot wait for each other in a circle.
    """

    def __init__(self, tx: Transaction, drafts: Sequence[Draft]) -> None:
        self._tx = tx
        definitions = [d.definition for d in drafts]
        queues = sorted({d.plan.queue for d in definitions})
        self._kinds = {name: tx.queue_kinds(name) for name in queues}
        self._topics: Sequence[str] | None = None
        self.secrets = _Secrets(tx, definitions)
        self.calendars = _Calendars(tx, definitions)
        self.jobs = _Jobs(tx, [d.name for d in definitions])
        self.quotas = _Quotas(tx)
        self._audited: list[AuditEntry] = []
        self._woken = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else the transaction offers
        return getattr(self._tx, name)

    def queue_kinds(self, queue: str) -> Sequence[str] | None:
        """As the transaction answered."""
        return self._kinds[queue]

    def kafka_topics(self) -> Sequence[str]:
        """As the transaction answers the first time."""
        if self._topics is None:
            self._topics = self._tx.kafka_topics()
        return self._topics

    def audit(
        self,
        action: str,
        subject: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep an entry."""
        self._audited.append(AuditEntry(action, subject, before, after))

    def wake_schedulers(self) -> None:
        """Once is enough, at the end."""
        self._woken = True

    def write(self) -> frozenset[JobId]:
        """Write everything; the jobs that are there now."""
        made = self._tx.jobs.insert_many(self.jobs.new, self._tx.actor)
        for job, names in self.calendars.used.items():
            if job in made:
                self._tx.calendars.use(job, names)
        subjects = {f"job:{job}" for job in made}
        self._tx.audit_many([e for e in self._audited if e.subject in subjects])
        if made:
            self.quotas.write()
        if self._woken and made:
            self._tx.wake_schedulers()
        return made


class _Jobs:
    """The part of `JobRecords` that a creation uses."""

    def __init__(self, tx: Transaction, names: Iterable[str]) -> None:
        self._jobs = tx.jobs
        self._taken = set(tx.jobs.taken(sorted(set(names))))
        self.new: list[tuple[JobRecord, Definition]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else the port offers
        return getattr(self._jobs, name)

    def insert(self, job: JobRecord, definition: Definition, actor: str) -> bool:
        """Keep a job; False: a live job has the name, or one before it in this request."""
        del actor
        if job.name in self._taken:
            return False
        self._taken.add(job.name)
        self.new.append((job, definition))
        return True


class _Secrets:
    """The part of `SecretRecords` that a creation uses."""

    def __init__(self, tx: Transaction, definitions: Iterable[Definition]) -> None:
        self._secrets = tx.secrets
        names = {n for d in definitions for _, n in d.secrets}
        self._missing = tx.secrets.missing(sorted(names))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else the port offers
        return getattr(self._secrets, name)

    def missing(self, names: Sequence[str]) -> frozenset[str]:
        """Those of the names that are not there."""
        return self._missing & frozenset(names)


class _Quotas:
    """The part of `QuotaRecords` that a creation uses."""

    def __init__(self, tx: Transaction) -> None:
        self._quotas = tx.quotas
        self._reached: list[Reached] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else the port offers
        return getattr(self._quotas, name)

    def tell(self, reached: Reached) -> bool:
        """Keep a level that the jobs of this request reach: a dry run tells of none."""
        self._reached.append(reached)
        return False

    def write(self) -> None:
        """Tell of what was reached."""
        for level in self._reached:
            self._quotas.tell(level)


@dataclass
class _Calendars:
    """The part of `CalendarRecords` that a creation uses."""

    tx: Transaction
    definitions: Sequence[Definition]
    used: dict[JobId, Sequence[str]] = field(default_factory=dict)
    _found: Mapping[str, Calendar] = field(init=False)

    def __post_init__(self) -> None:
        uses = (d.plan.calendars for d in self.definitions)
        names = {name for use in uses if use is not None for name in use.names}
        self._found = self.tx.calendars.load(sorted(names), lock=True)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else the port offers
        return getattr(self.tx.calendars, name)

    def load(self, names: Sequence[str], *, lock: bool = False) -> Mapping[str, Calendar]:
        """Those of the calendars that there are; their rows are shared already."""
        del lock
        return {name: self._found[name] for name in names if name in self._found}

    def use(self, job: JobId, names: Sequence[str]) -> None:
        """Keep which calendars a job names."""
        self.used[job] = names
