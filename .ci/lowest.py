"""Print constraints that pin what pyproject.toml requires, extras of the tests included, to its lowest versions.

python .ci/lowest.py > lowest.txt && pip install -c lowest.txt '.[test]'
"""

import re
import tomllib
from pathlib import Path

REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[.*\])?>=(?P<lowest>[\w.]+)")


def lowest_versions(project: dict, extra: str) -> dict[str, str]:
    """The lower bounds of the dependencies and of an extra, with the extras that it names."""
    found = {}
    for line in project["dependencies"] + project["optional-dependencies"][extra]:
        if line.startswith(f"{project['name']}["):
            for other in re.split(r"[\[\],]", line)[1:-1]:
                found |= lowest_versions(project, other)
        elif bound := REQUIREMENT.match(line):
            found[bound["name"]] = bound["lowest"]
    return found


if __name__ == "__main__":
    pyproject = Path(__file__).resolve().parents[1] / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    for name, version in sorted(lowest_versions(project, "test").items()):
        print(f"{name}=={version}")
