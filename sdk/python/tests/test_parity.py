"""The SDK can send every field that the API accepts: each field of a request is sent by the call that makes the request."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from hutch import Hutch, HutchError, Sandbox

document = Path(__file__).resolve().parents[3] / "api/openapi.yaml"

#: The calls that make a request of each schema, and the fields that they do not send, with the reason.
calls: dict[str, tuple[list[Callable[[Hutch, Sandbox], Any]], dict[str, str]]] = {
    "CreateRequest": ([lambda h, s: h.create], {}),
    "UpdateRequest": ([lambda h, s: s.update, lambda h, s: s.set_env_vars], {}),
    "ExecRequest": (
        [lambda h, s: s.exec, lambda h, s: s.exec_stream],
        {"openStdin": "needs a connection that is written to: start_process has it", "stdinBase64": "stdin is sent as one of them"},
    ),
    "RunRequest": (
        [lambda h, s: s.run_code],
        {"openStdin": "needs a connection that is written to", "stdinBase64": "stdin is sent as one of them"},
    ),
    "ContextRequest": ([lambda h, s: s.create_context], {}),
    "ProcessRequest": ([lambda h, s: s.start_process], {}),
    "WaitRequest": ([lambda h, s: s.wait_process], {}),
    "TemplateRequest": ([lambda h, s: h.create_template], {}),
    "SnapshotTag": ([lambda h, s: h.tag_snapshot], {}),
    "SnapshotRequest": ([lambda h, s: s.snapshot], {}),
    "ForkRequest": ([lambda h, s: s.fork], {}),
    "ExposeRequest": ([lambda h, s: s.expose_port], {}),
    "Network": ([lambda h, s: s.set_network], {}),
    "HibernateRequest": ([lambda h, s: s.hibernate], {}),
    "GitCloneRequest": ([lambda h, s: s.git_checkout], {}),
    "GitCommitRequest": ([lambda h, s: s.git_commit], {}),
    "EditRequest": ([lambda h, s: s.edit_file], {}),
    "BackupRequest": ([lambda h, s: s.create_backup], {}),
    "VolumeRequest": ([lambda h, s: h.create_volume], {}),
    "SecretRequest": ([lambda h, s: h.set_secret], {}),
    "PullRequest": ([lambda h, s: h.pull_image], {}),
    "BuildRequest": ([lambda h, s: h.build_image, lambda h, s: h.build_image_stream], {}),
    "TokenRequest": ([lambda h, s: h.create_token], {}),
}


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(document.read_text())["components"]["schemas"]
    return parsed


def fields_of(schema: dict[str, Any], schemas: dict[str, Any]) -> set[str]:
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
    parts = [part for kind in ("allOf", "oneOf", "anyOf") for part in schema.get(kind, [])]
    return set(schema.get("properties", {})).union(*(fields_of(part, schemas) for part in parts))


def value_for(annotation: str) -> Any:
    """A value of a parameter that is sent as it is."""
    for part, value in (
        ("Sequence", ["a"]),
        ("Mapping", {"A": "b"}),
        ("Env", {"A": "b"}),
        ("bool", True),
        ("int", 7),
        ("float", 7.5),
        ("str", "text"),
        ("bytes", b"tar"),
    ):
        if annotation.startswith(part):
            return value
    return {"of": annotation}


def sent_by(call: Callable[[Hutch, Sandbox], Any]) -> set[str]:
    """The fields of the body that a call sends with all its parameters."""
    bodies: list[Any] = []

    def keep(request: httpx.Request) -> httpx.Response:
        content = request.read()
        if content.startswith(b"--"):  # a form, whose first part is the request
            content = content.partition(b"\r\n\r\n")[2].partition(b"\r\n")[0]
        bodies.append(json.loads(content))
        return httpx.Response(400, json={"detail": "enough is known"})

    with Hutch("http://hutch.test", "t", http_client=httpx.Client(transport=httpx.MockTransport(keep))) as hutch:
        method = call(hutch, hutch.sandbox("box"))
        parameters = inspect.signature(method).parameters.values()
        given = {p.name: value_for(str(p.annotation)) for p in parameters if not p.name.startswith("on_") or p.name == "on_idle"}
        arguments = [given.pop(p.name) for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY]
        arguments += [given.pop(p.name) for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL]
        with pytest.raises(HutchError):
            answer = method(*arguments, **given)
            if hasattr(answer, "__enter__"):
                with answer:
                    list(answer)
    return {name for body in bodies for name in body}


@pytest.mark.parametrize("schema", calls)
def test_every_field_is_sent(schema: str, schemas: dict[str, Any]) -> None:
    ways, without = calls[schema]
    wanted = fields_of(schemas[schema], schemas)
    sent = set[str]().union(*(sent_by(way) for way in ways))
    assert wanted - sent == set(without), f"{schema}: fields of api/openapi.yaml that no parameter of the SDK sends"
    assert sent <= wanted, f"{schema}: the SDK sends fields that api/openapi.yaml does not have"
