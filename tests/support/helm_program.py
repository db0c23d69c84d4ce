"""Which Helm the tests run: the `helm` on the PATH where it is a 3.x that is new enough, else one
built from its Go module, once, into the user's cache folder.

    python -m tests.support.helm_program    builds it if need be and says which one it is
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.go_program import GoProgram

OLDEST = (3, 16)
KUBERNETES = "1.34"
"""The Kubernetes that manifests are rendered for where there is no cluster."""
_MAJOR, _MINOR = KUBERNETES.split(".")
BUILT = GoProgram(
    name="helm",
    package="helm.sh/helm/v3/cmd/helm",
    version="3.22.0",
    variables=(
        ("helm.sh/helm/v3/internal/version.version", "v3.22.0"),
        *(
            (f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part}", value)
            for package in ("lint/rules", "chartutil")
            for part, value in (("Major", _MAJOR), ("Minor", _MINOR))
        ),
    ),
)


@functools.cache
def helm() -> Path:
    """The Helm that the tests of this process run.

    Raises:
        NotBuiltError: there is neither a Helm nor a Go to build it.
    """
    on_path = shutil.which("helm")
    if on_path and OLDEST <= version(Path(on_path)) < (4,):
        return Path(on_path)
    return BUILT.build()


def version(program: Path) -> tuple[int, ...]:
    """A Helm's version; (0,) where it does not say."""
    done = subprocess.run(
        [program, "version", "--template", "{{.Version}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = re.match(r"v?(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else (0,)


if __name__ == "__main__":
    sys.stdout.write(f"{helm()}\n")
