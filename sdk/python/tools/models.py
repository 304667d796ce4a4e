"""Writes src/hutch/_models.py: a dataclass for each schema of api/openapi.yaml that the SDK returns or takes.

python tools/models.py [--check]
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import yaml

here = Path(__file__).resolve().parent.parent
target = here / "src/hutch/_models.py"

#: The schemas, and the names of their classes. Handles have the short names, so records are called Info.
classes = {
    "Sandbox": "SandboxInfo",
    "Process": "ProcessInfo",
    "CodeContext": "ContextInfo",
    "Snapshot": "SnapshotInfo",
    "Volume": "VolumeInfo",
    "Token": "TokenInfo",
    "Backup": "BackupInfo",
    "Secret": "SecretInfo",
    "Image": "ImageInfo",
    "Build": "BuildInfo",
    "Template": "TemplateInfo",
    "Connection": "ConnectionInfo",
    "Port": "ExposedPort",
    "WaitRequest": "WaitFor",
    "Size": "TerminalSize",
    "Screen": "ScreenInfo",
    **{
        name: name
        for name in [
            "AgentEvent",
            "AgentUsage",
            "AnswerOutput",
            "AuditVerification",
            "Brokering",
            "BuildEvent",
            "BuildOutput",
            "ConnectionLog",
            "Consumption",
            "Destruction",
            "Edit",
            "Environment",
            "Examination",
            "FileEvent",
            "FileInfo",
            "GitChange",
            "GitRepository",
            "GitStatus",
            "Grant",
            "ImageConfig",
            "InstanceType",
            "Language",
            "Limits",
            "Match",
            "MintedToken",
            "ModelUsage",
            "Network",
            "NetworkLimits",
            "NetworkState",
            "Node",
            "NodeList",
            "RemovedNode",
            "PortEvent",
            "StatsHistory",
            "TimelineEntry",
            "TimelinePage",
            "PortLink",
            "Program",
            "Pruned",
            "Repair",
            "Resources",
            "ScreenAction",
            "SnapshotDiff",
            "Stats",
            "SharedTerminal",
            "StatsReport",
            "TerminalLink",
            "TokenLimits",
            "Traffic",
            "Usage",
            "UsageReport",
            "Version",
            "VolumeMount",
            "VolumeUse",
            "WaitResult",
        ]
    },
}
#: Words that Python keeps for itself.
renamed = {"from": "from_path", "as": "as_", "try": "try_"}

head = '''"""What the server returns and takes, as dataclasses. Written by tools/models.py from api/openapi.yaml: do not change it by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ._wire import json_of, names_of, time_of


class _Record:
    """What dataclass would write for each class: writing it for all of them takes most of the time of an import."""

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)  # type: ignore[attr-defined]
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__)  # type: ignore[attr-defined]

'''


def snake(name: str) -> str:
    name = renamed.get(name, name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def ref(schema: dict[str, Any]) -> str | None:
    for s in [schema, *schema.get("allOf", [])]:
        if "$ref" in s:
            name = s["$ref"].rsplit("/", 1)[1]
            return classes.setdefault(name, name)
    return None


def hint(schema: dict[str, Any]) -> str:
    """The type of a field."""
    if name := ref(schema):
        return name
    if "enum" in schema:
        return "Literal[" + ", ".join(f'"{v}"' for v in schema["enum"]) + "]"
    match schema.get("type"):
        case "array":
            return f"list[{hint(schema['items'])}]"
        case "object":
            return f"dict[str, {hint(schema['additionalProperties'])}]"
        case "string" if schema.get("format") == "date-time":
            return "datetime"
        case "string":
            return "str"
        case "integer":
            return "int"
        case "number":
            return "float"
        case "boolean":
            return "bool"
    return "Any"


def read(schema: dict[str, Any], value: str) -> str:
    """The expression that makes a field of JSON."""
    if name := ref(schema):
        return f"{name}.from_json({value})"
    if hint(schema) == "datetime":
        return f"time_of({value})"
    if schema.get("type") == "array":
        item = read(schema["items"], "x")
        return f"[{item} for x in {value}]" if item != "x" else f"list({value})"
    return value


def default(schema: dict[str, Any]) -> str:
    match hint(schema).split("[")[0]:
        case "list":
            return "field(default_factory=list)"
        case "dict":
            return "field(default_factory=dict)"
        case "bool":
            return "False"
    return "None"


def note(text: str | None) -> str:
    return f"    #: {' '.join(text.split())}\n" if text else ""


def model(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    fields = sorted(((n, s) for n, s in schema["properties"].items() if n != "encoding"), key=lambda f: f[0] not in required)
    names = "encoding" in schema["properties"]
    out = f"\n\n@dataclass(init=False, repr=False, eq=False)\nclass {name}(_Record):\n"
    out += f'    """{schema.get("description", "The version of a server.").strip()}"""\n\n'
    made, written, taken, kept = "", "", "", ""
    for wire, s in fields:
        attribute, kind = snake(wire), hint(s)
        out += note(s.get("description"))
        if wire in required:
            out += f"    {attribute}: {kind}\n"
            taken += f"        {attribute}: {kind},\n"
            kept += f"        self.{attribute} = {attribute}\n"
            made += f"            {attribute}={read(s, f'v[{wire!r}]' + (' or []' if s.get('type') == 'array' else ''))},\n"
        else:
            start = default(s)
            out += f"    {attribute}: {kind}{' | None' if start == 'None' else ''} = {start}\n"
            optional, first = ("", "False") if start == "False" else (" | None", "None")
            taken += f"        {attribute}: {kind}{optional} = {first},\n"
            made_here = "field" in start and f" if {attribute} is not None else {'[]' if 'list' in start else '{}'}"
            kept += f"        self.{attribute} = {attribute}{made_here or ''}\n"
            if start != "None":
                empty = {"list": "[]", "dict": "{}", "bool": "False"}[kind.split("[")[0]]
                made += f"            {attribute}={read(s, f'v.get({wire!r}) or {empty}')},\n"
            else:
                got = read(s, f"v[{wire!r}]")
                made += f"            {attribute}={f'v.get({wire!r})' if got == f'v[{wire!r}]' else f'{got} if v.get({wire!r}) is not None else None'},\n"
        left_out = "" if wire in required else " or None" if default(s) != "None" else ""
        written += f"                {wire!r}: self.{attribute}{left_out},\n"
    first = "        v = names_of(v)\n" if names else ""
    out += f"\n    def __init__(\n        self,\n{taken}    ) -> None:\n{kept}"
    out += f"\n    @classmethod\n    def from_json(cls, v: Any) -> {name}:\n{first}        return cls(\n{made}        )\n"
    out += "\n    def to_json(self) -> dict[str, Any]:\n        made: dict[str, Any] = json_of(\n            {\n"
    out += f"{written}            }}\n        )\n        return made\n"
    return out


def text() -> str:
    document = yaml.safe_load((here.parent.parent / "api/openapi.yaml").read_text())
    schemas = document["components"]["schemas"]
    made: dict[str, str] = {}
    while missing := [n for n in classes if classes[n] not in made]:  # a schema can name more of them
        made |= {classes[n]: model(classes[n], schemas[n]) for n in missing}
    listed = "".join(f"    {n!r},\n" for n in sorted(made))
    return f"{head}{''.join(made[n] for n in sorted(made))}\n\n__all__ = [\n{listed}]\n"


def fields(source: str) -> dict[str, str]:
    """The types of all fields of all classes."""
    return {
        f"{c.name}.{f.target.id}": ast.unparse(f.annotation)
        for c in ast.parse(source).body
        if isinstance(c, ast.ClassDef)
        for f in c.body
        if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)
    }


def check(made: str) -> None:
    """Fails if the SDK has a field that the API lacks. The reverse is allowed: new fields of the API are missing until this runs again."""
    ours, api = fields(target.read_text()), fields(made)
    wrong = [f"{name} is {kind}, and {api.get(name, 'nothing')} in the API" for name, kind in ours.items() if api.get(name) != kind]
    if new := api.keys() - ours.keys():
        print("new in the API: " + ", ".join(sorted(new)))
    if wrong:
        sys.exit("\n".join([*wrong, "src/hutch/_models.py is not what tools/models.py makes of api/openapi.yaml: run it"]))


if __name__ == "__main__":
    if "--check" in sys.argv:
        check(text())
    else:
        target.write_text(text())
