"""What the apache/kafka image's own entry point does: settings from variables, storage, the node.

`KAFKA_LOG_DIRS` is `log.dirs`, and so on. It runs in an image that holds nothing of the project.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
FILE = Path("/tmp/server.properties")


def main() -> None:
    """Write the settings, format what is empty, become the node."""
    settings = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith("KAFKA_")
    }
    data = Path(settings.setdefault("log.dirs", "/var/lib/kafka/data").split(",")[0])
    FILE.write_text("".join(f"{name}={value}\n" for name, value in sorted(settings.items())))
    java = ["/opt/java/bin/java", *OPTIONS, "-cp", "/opt/kafka/*"]
    if not (data / "meta.properties").exists():
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(FILE)],
            check=True,
        )
    os.execv(java[0], [*java, "kafka.Kafka", str(FILE)])


if __name__ == "__main__":
    main()
