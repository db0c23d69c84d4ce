"""Stands in for Grafana: refuses provisioning that it could not read, and says that it is well.

It runs in an image that holds nothing of the project. It shows nothing: what the dashboards ask
is asked of Prometheus by the tests.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

PROVISIONING = Path("/etc/grafana/provisioning")
DASHBOARDS = Path("/etc/grafana/dashboards")
WANTED = {"datasources": "url: http://prometheus:9090", "dashboards": f"path: {DASHBOARDS}"}


class Handler(BaseHTTPRequestHandler):
    """Answers /api/health, and /api/search with the dashboards that were found."""

    def do_GET(self) -> None:
        """Answer."""
        found = [json.loads(p.read_text())["title"] for p in sorted(DASHBOARDS.glob("*.json"))]
        body = {"/api/health": {"database": "ok"}, "/api/search": found}.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


def main() -> None:
    """Look at what is provisioned, then answer."""
    for folder, line in WANTED.items():
        texts = [path.read_text() for path in (PROVISIONING / folder).glob("*.yaml")]
        if not any(line in text for text in texts):
            sys.exit(f"{PROVISIONING / folder}: no file says {line!r}")
    HTTPServer(("0.0.0.0", 3000), Handler).serve_forever()


if __name__ == "__main__":
    main()
