from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.servers import Servers, delete_topics

pytestmark = pytest.mark.integration


def test_topics_with_the_prefix_are_deleted_and_others_stay(
    stack: Servers, topic_prefix: str
) -> None:
    admin = AdminClient({"bootstrap.servers": stack.kafka_bootstrap})
    mine, other = f"{topic_prefix}one", f"other-{topic_prefix}one"
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in (mine, other)]).values():
        future.result(timeout=30)
    delete_topics(stack.kafka_bootstrap, topic_prefix)
    names = set(admin.list_topics(timeout=30).topics)
    delete_topics(stack.kafka_bootstrap, other)
    assert mine not in names
    assert other in names
