"""Runs the cases of sdk/contract with the SDK. It is written for the async client; test_contract.py makes the sync runner of it, as
tools/unasync.py makes the sync client."""

from __future__ import annotations

import base64
import re
import secrets
from contextlib import suppress
from dataclasses import asdict
from time import monotonic
from typing import Any

from hutch import (
    AgentResult,
    AgentTries,
    Answer,
    AnswerOutput,
    AnswerText,
    AsyncHutch,
    Brokering,
    CodeError,
    CodeResult,
    ExecResult,
    HeaderRule,
    HutchError,
    Limits,
    Network,
    NetworkLimits,
    NetworkProxy,
    Output,
    Program,
    Region,
    RunResult,
    VolumeMount,
    WaitFor,
)
from hutch._async._platform import sleep
from hutch._wire import time_of

PATIENCE = 30.0

#: The beginning of the outcome of a case that was not run, because a program is missing.
MISSING = "there is no "


# Values: models as JSON has them, and bytes as text or base64.


def plain(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def raw(value: Any) -> bytes:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def json_of(value: Any) -> Any:
    if isinstance(value, (ExecResult, RunResult)):
        fields = {camel(k): v for k, v in asdict(value).items() if k not in ("stdout_bytes", "stderr_bytes", "results", "error", "timestamp")}
        fields |= {"stdout": plain(value.stdout_bytes), "stderr": plain(value.stderr_bytes)}
        if isinstance(value, RunResult):
            fields |= {"results": [r.to_json() for r in value.results], "error": value.error and value.error.to_json()}
        return fields
    if isinstance(value, list):
        return [json_of(v) for v in value]
    if isinstance(value, bytes):
        return plain(value)
    return value.to_json() if hasattr(value, "to_json") else value


def joined(output: list[Output]) -> list[dict[str, Any]]:
    """Joins pieces of the same stream that follow each other."""
    pieces: list[tuple[str, bytes]] = []
    for o in output:
        if pieces and pieces[-1][0] == o.stream:
            pieces[-1] = (o.stream, pieces[-1][1] + o.data)
        else:
            pieces.append((o.stream, o.data))
    return [{"stream": stream, "data": plain(data)} for stream, data in pieces]


def answered(answer: Answer) -> dict[str, Any]:
    fields = {camel(k): v for k, v in asdict(answer).items() if k not in ("files", "usage", "resources")}
    files = [{"path": f.path, "content": plain(f.data), "size": f.size, "omitted": f.omitted} for f in answer.files]
    return fields | {"files": files, "usage": answer.usage.to_json(), "resources": answer.resources and answer.resources.to_json()}


def worked(result: AgentResult) -> dict[str, Any]:
    fields = {camel(k): v for k, v in asdict(result).items() if k not in ("diff_bytes", "usage")}
    return fields | {"diff": plain(result.diff_bytes), "usage": result.usage.to_json()}


def tried(all: AgentTries) -> dict[str, Any]:
    tries = [{"try": t.number, "result": worked(t.result)} | ({"kind": t.kind, "error": t.error} if t.error else {}) for t in all.tries]
    return {"id": all.id, "tries": tries}


# Calls: each takes the client and the arguments by their names in the API.


def snake(args: dict[str, Any], *without: str) -> dict[str, Any]:
    """Keyword arguments of the SDK."""
    made = {}
    for name, value in args.items():
        if name in ("id", *without):
            continue
        if name == "stdin":
            value = value if isinstance(value, str) else raw(value)
        if name == "volumes":
            value = [VolumeMount.from_json(v) for v in value]
        if name in ("network", "brokered", "ready"):
            value = {"network": Network, "brokered": Brokering, "ready": WaitFor}[name].from_json(value)
        if name == "mode" and isinstance(value, str) and value.isdigit():
            value = int(value, 8)
        if name in ("createdAfter", "createdBefore", "since"):
            value = time_of(value)
        made[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()] = value
    return made


class Calls:
    def __init__(self, hutch: AsyncHutch) -> None:
        self.hutch = hutch

    def box(self, args: dict[str, Any]) -> Any:
        return self.hutch.sandbox(args["id"])

    async def create_sandbox(self, a: dict[str, Any], stop: str | None) -> Any:
        fields = snake(a)
        if "limits" in fields:
            fields["limits"] = Limits.from_json(fields["limits"])
        sandbox = await self.hutch.create(**fields)
        return sandbox._record

    async def get_sandbox(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).info()

    async def list_sandboxes(self, a: dict[str, Any], stop: str | None) -> Any:
        labels = dict(pair.split("=", 1) for pair in a.get("label", []))
        return await self.hutch.list_sandboxes(labels=labels, **snake(a, "label"))

    async def update_sandbox(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).update(**snake(a))

    async def destroy_sandbox(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.destroy(a["id"], force=a.get("force", False))

    async def list_languages(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).list_languages()

    async def list_instance_types(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.list_instance_types()

    async def read_version(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.version()

    async def exec(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).exec(**snake(a))

    async def exec_stream(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.output_of(self.box(a).exec_stream(**snake(a)), stop)

    async def resume_exec(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.output_of(self.box(a).resume_exec(a["exec"], a["cursor"]), stop)

    async def output_of(self, stream: Any, stop: str | None) -> Any:
        output: list[Output] = []
        async with stream:
            async for piece in stream:
                output.append(piece)
                if stop and stop.encode() in b"".join(o.data for o in output):
                    return {"execId": stream.exec_id, "output": joined(output), "result": None}
        return {"execId": stream.exec_id, "output": joined(output), "result": json_of(stream.result)}

    async def cancel_exec(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).cancel_exec(a["exec"])

    async def run(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).run_code(**snake(a))

    async def run_stream(self, a: dict[str, Any], stop: str | None) -> Any:
        events: list[dict[str, Any]] = []
        printed = b""
        async with self.box(a).run_code_stream(**snake(a)) as stream:
            async for event in stream:
                if isinstance(event, Output):
                    printed += event.data
                    if events and event.stream in events[-1]:
                        events[-1][event.stream] += event.data
                    else:
                        events.append({event.stream: event.data})
                elif isinstance(event, CodeResult):
                    events.append({"result": event.to_json()})
                elif isinstance(event, CodeError):
                    events.append({"exception": event.to_json()})
                if stop and stop.encode() in printed:
                    return {"events": [], "result": None}
        return {"events": [{k: json_of(v) for k, v in e.items()} for e in events], "result": json_of(stream.result)}

    def question(self, a: dict[str, Any]) -> dict[str, Any]:
        fields = snake(a, "files", "timeout")
        if "files" in a:
            fields["files"] = {f["path"]: base64.b64decode(f["content"]) if f.get("encoding") else f["content"] for f in a["files"]}
        if "timeout" in a:
            fields["timeout"] = a["timeout"] / 1000
        return fields

    async def ask(self, a: dict[str, Any], stop: str | None) -> Any:
        return answered(await self.hutch.ask(**self.question(a)))

    async def ask_stream(self, a: dict[str, Any], stop: str | None) -> Any:
        events: list[dict[str, Any]] = []
        printed = ""
        async with self.hutch.ask_stream(**self.question(a)) as stream:
            async for event in stream:
                last = events[-1] if events else {}
                if isinstance(event, AnswerText):
                    if "text" in last:
                        last["text"] += event.text
                    else:
                        events.append({"text": event.text})
                elif isinstance(event, AnswerOutput):
                    printed += event.text
                    if last.get("output", {}).get("stream") == event.stream:
                        last["output"]["text"] += event.text
                    else:
                        events.append({"output": event.to_json()})
                elif isinstance(event, Program):
                    events.append({"program": event.to_json()})
                else:
                    events.append({"repair": event.to_json()})
                if stop and stop in printed:
                    return {"events": events, "result": None}
        return {"events": events, "result": answered(stream.result)}

    def session(self, a: dict[str, Any]) -> dict[str, Any]:
        fields = snake(a, "repository", "archive")
        if "archive" in a:
            fields |= {"repository": base64.b64decode(a["archive"])}
        if "repository" in a:
            fields |= {"repository": a["repository"]["url"], **snake(a["repository"], "url")}
        return fields

    async def run_agent(self, a: dict[str, Any], stop: str | None) -> Any:
        return worked(await self.hutch.run_agent(**self.session(a)))

    async def run_agent_stream(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.agent_of(self.hutch.run_agent_stream(**self.session(a)), stop)

    async def try_agent(self, a: dict[str, Any], stop: str | None) -> Any:
        return tried(await self.hutch.try_agent(**self.session(a)))

    async def try_agent_stream(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.tries_of(self.hutch.try_agent_stream(**self.session(a)), stop)

    async def follow_tries(self, a: dict[str, Any], stop: str | None) -> Any:
        return tried(await self.hutch.follow_tries(**snake(a)))

    async def follow_tries_stream(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.tries_of(self.hutch.follow_tries_stream(**snake(a)), stop)

    async def tries_of(self, stream: Any, stop: str | None) -> Any:
        events: list[Any] = []
        async with stream:
            async for event in stream:
                events.append(event.to_json())
                if stop and stop in (event.text or ""):
                    return {"tries": stream.tries, "sessions": list(stream.sessions), "events": events, "result": None}
        return {"tries": stream.tries, "sessions": list(stream.sessions), "events": events, "result": tried(stream.result)}

    async def prompt_agent(self, a: dict[str, Any], stop: str | None) -> Any:
        return worked(await self.hutch.prompt_agent(**snake(a)))

    async def prompt_agent_stream(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.agent_of(self.hutch.prompt_agent_stream(**snake(a)), stop)

    async def follow_agent(self, a: dict[str, Any], stop: str | None) -> Any:
        return worked(await self.hutch.follow_agent(**snake(a)))

    async def follow_agent_stream(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.agent_of(self.hutch.follow_agent_stream(**snake(a)), stop)

    async def agent_of(self, stream: Any, stop: str | None) -> Any:
        events: list[Any] = []
        async with stream:
            async for event in stream:
                events.append(event.to_json())
                if stop and stop in (event.text or ""):
                    return {"session": stream.sandbox_id, "events": events, "result": None}
        return {"session": stream.sandbox_id, "events": events, "result": worked(stream.result)}

    async def stop_agent(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.hutch.stop_agent(a["session"])

    async def create_context(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).create_context(**snake(a))

    async def list_contexts(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).list_contexts()

    async def delete_context(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).delete_context(a["context"])

    async def interrupt_context(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).interrupt(a["context"])

    async def start_process(self, a: dict[str, Any], stop: str | None) -> Any:
        return (await self.box(a).start_process(**snake(a))).info

    async def get_process(self, a: dict[str, Any], stop: str | None) -> Any:
        return (await self.box(a).get_process(a["process"])).info

    async def list_processes(self, a: dict[str, Any], stop: str | None) -> Any:
        return [p.info for p in await self.box(a).list_processes()]

    async def clean_processes(self, a: dict[str, Any], stop: str | None) -> Any:
        return {"removed": await self.box(a).clean_processes()}

    async def signal_process(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).kill_process(a["process"], a["signal"])

    async def wait_process(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).wait_process(a["process"], **snake(a, "process"))

    async def read_logs(self, a: dict[str, Any], stop: str | None) -> Any:
        logs = await self.box(a).get_process_logs(a["process"], a["cursor"])
        return {"output": joined(logs.output), "cursor": logs.cursor}

    async def follow_logs(self, a: dict[str, Any], stop: str | None) -> Any:
        stream = self.box(a).stream_process_logs(a["process"], a["cursor"])
        output = [piece async for piece in stream]
        return {"output": joined(output), "cursor": stream.cursor}

    async def write_input(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).write_input(a["process"], raw(a["content"]), end=a.get("end", False))

    async def terminal(self, a: dict[str, Any], stop: str | None) -> Any:
        async with await self.box(a).terminal(a["command"], columns=a["columns"], rows=a["rows"]) as terminal:
            await terminal.send(a["input"])
            output = await terminal.read()
            return {"output": plain(output), "exitCode": terminal.exit.exit_code if terminal.exit else None}

    async def read_file(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).read_bytes(**snake(a))

    async def write_file(self, a: dict[str, Any], stop: str | None) -> Any:
        fields = {"parents": False, **snake(a, "content")}
        return await self.box(a).write_file(content=raw(a["content"]), **fields)

    async def edit_file(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).edit_file(**snake(a))

    async def stat_file(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).stat(a["path"])

    async def file_exists(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).exists(a["path"])

    async def list_files(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).list_files(**snake(a))

    async def search_files(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).search_files(**snake(a))

    async def make_folder(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).mkdir(a["path"], parents=a.get("parents", False))

    async def move_file(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).move_file(a["from"], a["to"], replace=a.get("replace", False))

    async def copy_file(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).copy_file(a["from"], a["to"], replace=a.get("replace", False))

    async def delete_file(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).delete_file(**snake(a))

    async def chmod_file(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).chmod(a["path"], int(a["mode"], 8))

    async def pack_files(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).pack(a["path"], format=a["format"])

    async def unpack_files(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).unpack(a["path"], raw(a["content"]), format=a["format"])

    async def git_clone(self, a: dict[str, Any], stop: str | None) -> Any:
        fields = snake(a)
        return await self.box(a).git_checkout(target_dir=fields.pop("dir", None), **fields)

    async def git_status(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).git_status(a.get("dir"))

    async def git_diff(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).git_diff(a.get("dir"))

    async def git_commit(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).git_commit(**snake(a))

    async def share_terminal(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).share_terminal(a["process"], a.get("lifetime"))

    async def list_terminal_links(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).terminal_links(a["process"])

    async def unshare_terminal(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).unshare_terminal(a["process"], a["link"])

    async def expose_port(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).expose_port(**snake(a))

    async def unexpose_port(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).unexpose_port(a["port"])

    async def list_ports(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).get_exposed_ports()

    async def validate_port_token(self, a: dict[str, Any], stop: str | None) -> Any:
        return {"valid": await self.box(a).validate_port_token(a["port"], a["token"])}

    async def link_port(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).link_port(**snake(a))

    async def get_screen(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).screen.info()

    async def start_screen(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).screen.start(**snake(a))

    async def take_screenshot(self, a: dict[str, Any], stop: str | None) -> Any:
        shot = await self.box(a).screen.screenshot(Region(**snake(a)) if "x" in a else None)
        return {"png": plain(shot.png), "width": shot.width, "height": shot.height}

    async def control_screen(self, a: dict[str, Any], stop: str | None) -> Any:
        result = await self.box(a).screen.do(*a["actions"])
        image = plain(result.image.png) if result.image else None
        return {"width": result.width, "height": result.height, "cursor": result.cursor.to_json(), "image": image}

    async def read_clipboard(self, a: dict[str, Any], stop: str | None) -> Any:
        return {"text": await self.box(a).screen.clipboard()}

    async def write_clipboard(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.box(a).screen.set_clipboard(a["text"])

    async def open_url(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).screen.open(a["url"])

    async def view_screen(self, a: dict[str, Any], stop: str | None) -> Any:
        got = b""
        async with self.box(a).screen.view(control=a.get("control", False)) as view:
            async for piece in view:
                got += piece
                if len(got) >= 12:
                    return plain(got[:12])

    async def get_network(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).get_network()

    async def set_network(self, a: dict[str, Any], stop: str | None) -> Any:
        fields = snake(a)
        if "limits" in fields:
            fields["limits"] = NetworkLimits.from_json(fields["limits"])
        if "headers" in fields:
            fields["headers"] = [HeaderRule.from_json(r) for r in fields["headers"]]
        if "proxy" in fields:
            fields["proxy"] = NetworkProxy.from_json(fields["proxy"])
        return await self.box(a).set_network(**fields)

    async def read_timeline(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).timeline(**snake(a))

    async def list_connections(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).list_connections(**snake(a))

    async def create_snapshot(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).snapshot(**snake(a))

    async def fork_sandbox(self, a: dict[str, Any], stop: str | None) -> Any:
        return [f._record for f in await self.box(a).fork(**snake(a))]

    async def pause_sandbox(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).pause()

    async def read_stats(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.stats()

    async def read_stats_history(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).stats_history(**snake(a))

    async def watch_stats(self, a: dict[str, Any], stop: str | None) -> Any:
        async with self.hutch.watch_stats(**a) as reports:
            async for report in reports:
                return report

    async def hibernate_sandbox(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).hibernate(files_only=a.get("filesOnly", False))

    async def resume_sandbox(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).resume()

    async def list_snapshots(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.list_snapshots()

    async def tag_snapshot(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.tag_snapshot(**a)

    async def diff_snapshot(self, a: dict[str, Any], stop: str | None) -> Any:
        choices: dict[str, Any] = {name: a[name] for name in ("path", "text", "wake") if name in a}
        return await self.hutch.diff_snapshot(a["snapshot"], a.get("to"), sandbox=a.get("sandboxId"), **choices)

    async def delete_snapshot(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.hutch.delete_snapshot(a["snapshot"])

    async def create_template(self, a: dict[str, Any], stop: str | None) -> Any:
        a = dict(a)
        if "from" in a:
            a["fromSandbox"] = a.pop("from")
        return await self.hutch.create_template(**snake(a))

    async def create_backup(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).create_backup(**snake(a))

    async def restore_backup(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.hutch.sandbox(a["sandboxId"]).restore_backup(a["backup"], a.get("dir"))

    async def list_backups(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.list_backups()

    async def delete_backup(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.hutch.delete_backup(a["backup"])

    async def create_volume(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.create_volume(**snake(a))

    async def list_volumes(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.list_volumes()

    async def read_volume_record(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.get_volume(a["volume"])

    async def delete_volume(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.hutch.delete_volume(a["volume"])

    async def save_volumes(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.box(a).save_volumes()

    async def read_volume(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.read_volume(a["volume"], a.get("path"))

    async def write_volume(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.write_volume(a["volume"], raw(a["content"]), a.get("path"))

    async def set_secret(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.set_secret(**snake(a))

    async def list_secrets(self, a: dict[str, Any], stop: str | None) -> Any:
        return await self.hutch.list_secrets()

    async def delete_secret(self, a: dict[str, Any], stop: str | None) -> Any:
        await self.hutch.delete_secret(a["name"])


# Cases.


class Failed(Exception):
    pass


class Runner:
    """Runs one file."""

    def __init__(self, hutch: AsyncHutch) -> None:
        self.calls = Calls(hutch)
        self.hutch = hutch

    async def file(self, file: dict[str, Any]) -> dict[str, str | None]:
        """What each case failed with, or None."""
        async with await self.hutch.create() as sandbox:
            for program in file.get("needs", []):
                if not (await sandbox.exec(f"command -v {program}")).success:
                    return {case["name"]: f"{MISSING}{program}" for case in file["cases"]}
            return {case["name"]: await self.case(case, sandbox.sandbox_id) for case in file["cases"]}

    async def case(self, case: dict[str, Any], sandbox: str) -> str | None:
        known = {"sandbox": sandbox, "unique": "u" + secrets.token_hex(4)[1:]}
        try:
            for i, step in enumerate(case["steps"]):
                try:
                    await self.step(step, known)
                except Exception as e:
                    return f"step {i + 1}, {step['call']}: {type(e).__name__}: {e}"
            return None
        finally:
            for step in case.get("finally", []):
                with suppress(Exception):
                    await self.step(step, known)

    async def step(self, step: dict[str, Any], known: dict[str, Any]) -> None:
        end = monotonic() + PATIENCE
        while True:
            try:
                return await self.once(step, known)
            except Exception:
                if not step.get("eventually") or monotonic() > end:
                    raise
            await sleep(0.1)

    async def once(self, step: dict[str, Any], known: dict[str, Any]) -> None:
        args, fails = fill(step.get("args", {}), known), fill(step.get("fails"), known)
        try:
            if step["call"] == "watchFiles":
                return await self.watch(step, args, known)
            call = getattr(self.calls, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", step["call"]).lower())
            got = json_of(await call(args, step.get("stopAt")))
        except HutchError as e:
            if not fails or e.kind != fails["kind"]:
                raise
            if "detail" in fails:
                match(fails["detail"], e.message, "the message")
            return
        if fails:
            raise Failed(f"it gave {str(got)[:300]}, and should fail with {fails}")
        if "want" in step:
            match(fill(step["want"], known), got, "the result")
        for name, path in step.get("save", {}).items():
            value = got
            for part in path.split(".") if path else []:
                value = value[int(part)] if isinstance(value, list) else value[part]
            known[name] = value

    async def watch(self, step: dict[str, Any], args: dict[str, Any], known: dict[str, Any]) -> None:
        left = fill(step["wantEvents"], known)
        async with self.calls.box(args).watch(args["path"], recursive=args.get("recursive", False)) as watch:
            first = await anext(watch)
            match({"type": "ready"}, first.to_json(), "the first event")
            for inner in step.get("during", []):
                await self.step(inner, known)
            while left:
                event = (await anext(watch)).to_json()
                try:
                    match(left[0], event, "an event")
                    left = left[1:]
                except Failed:
                    if event["type"] == "ended":
                        raise


def fill(value: Any, known: dict[str, Any]) -> Any:
    """Replaces variables."""
    if isinstance(value, dict):
        return {k: fill(v, known) for k, v in value.items()}
    if isinstance(value, list):
        return [fill(v, known) for v in value]
    if not isinstance(value, str):
        return value
    if whole := re.fullmatch(r"\{\{(\w+)\}\}", value):
        return known[whole[1]]
    return re.sub(r"\{\{(\w+)\}\}", lambda m: str(known[m[1]]), value)


def match(want: Any, got: Any, where: str) -> None:
    if isinstance(want, dict) and len(want) == 1 and next(iter(want)).startswith("$"):
        if not special(*next(iter(want.items())), got, where):
            raise Failed(f"{where} is {str(got)[:300]!r}, which is not {want}")
    elif isinstance(want, dict):
        if not isinstance(got, dict):
            raise Failed(f"{where} is {str(got)[:300]!r}, and should be {want}")
        for name, value in want.items():
            match(value, got.get(name), f"{where}.{name}")
    elif isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            raise Failed(f"{where} is {str(got)[:300]!r}, and should have {len(want)} items: {want}")
        for i, value in enumerate(want):
            match(value, got[i], f"{where}.{i}")
    elif want != got or isinstance(want, bool) != isinstance(got, bool):
        raise Failed(f"{where} is {str(got)[:300]!r}, and should be {want!r}")


def matches(want: Any, got: Any) -> bool:
    try:
        match(want, got, "")
    except Failed:
        return False
    return True


types = {"string": str, "number": (int, float), "boolean": bool, "array": list, "object": dict, "null": type(None)}


def special(name: str, want: Any, got: Any, where: str) -> bool:
    if name == "$match":
        return isinstance(got, str) and re.search(want, got) is not None
    if name == "$contains":
        if isinstance(got, str):
            return isinstance(want, str) and want in got
        return isinstance(got, list) and any(matches(want, v) for v in got)
    if name == "$oneOf":
        return any(matches(w, got) for w in want)
    if name == "$not":
        return not matches(want, got)
    if name == "$length":
        return isinstance(got, (str, list)) and len(got) == want
    if name == "$atLeast":
        return isinstance(got, (int, float)) and got >= want
    if name == "$atMost":
        return isinstance(got, (int, float)) and got <= want
    if name == "$type":
        return isinstance(got, types[want]) and (want == "boolean" or not isinstance(got, bool))
    raise Failed(f"there is no matcher {name}")
