"""What the server returns and takes, as dataclasses. Written by tools/models.py from api/openapi.yaml: do not change it by hand."""

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



@dataclass(init=False, repr=False, eq=False)
class AgentEvent(_Record):
    """One thing that a coding agent does, whichever agent it is."""

    #: began: text is the model. said: text is what the agent says. called: it uses tool, and text is what for. got: text is what the tool gave. log: text is a line that the agent prints beside its stream. ended: text is its last words.
    type: Literal["began", "said", "called", "got", "log", "ended"]
    text: str | None = None
    tool: str | None = None
    #: The tool, or the agent at its end, saw an error.
    failed: bool = False
    #: The text continues that of the event before.
    continues: bool = False
    #: What the agent has used; in the event ended.
    usage: AgentUsage | None = None
    #: Which of several tries, from 1.
    try_: int | None = None

    def __init__(
        self,
        type: Literal["began", "said", "called", "got", "log", "ended"],
        text: str | None = None,
        tool: str | None = None,
        failed: bool = False,
        continues: bool = False,
        usage: AgentUsage | None = None,
        try_: int | None = None,
    ) -> None:
        self.type = type
        self.text = text
        self.tool = tool
        self.failed = failed
        self.continues = continues
        self.usage = usage
        self.try_ = try_

    @classmethod
    def from_json(cls, v: Any) -> AgentEvent:
        return cls(
            type=v['type'],
            text=v.get('text'),
            tool=v.get('tool'),
            failed=v.get('failed') or False,
            continues=v.get('continues') or False,
            usage=AgentUsage.from_json(v['usage']) if v.get('usage') is not None else None,
            try_=v.get('try'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'type': self.type,
                'text': self.text,
                'tool': self.tool,
                'failed': self.failed or None,
                'continues': self.continues or None,
                'usage': self.usage,
                'try': self.try_,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class AgentUsage(_Record):
    """What a coding agent says it has used; 0 for what it does not say."""

    turns: int
    #: Input tokens, with those of a cache.
    input_tokens: int
    output_tokens: int
    #: Cost in US dollars.
    cost: float

    def __init__(
        self,
        turns: int,
        input_tokens: int,
        output_tokens: int,
        cost: float,
    ) -> None:
        self.turns = turns
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.cost = cost

    @classmethod
    def from_json(cls, v: Any) -> AgentUsage:
        return cls(
            turns=v['turns'],
            input_tokens=v['inputTokens'],
            output_tokens=v['outputTokens'],
            cost=v['cost'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'turns': self.turns,
                'inputTokens': self.input_tokens,
                'outputTokens': self.output_tokens,
                'cost': self.cost,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class AnswerOutput(_Record):
    """A piece of what the program of a question prints."""

    stream: Literal["stdout", "stderr"]
    text: str

    def __init__(
        self,
        stream: Literal["stdout", "stderr"],
        text: str,
    ) -> None:
        self.stream = stream
        self.text = text

    @classmethod
    def from_json(cls, v: Any) -> AnswerOutput:
        return cls(
            stream=v['stream'],
            text=v['text'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'stream': self.stream,
                'text': self.text,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class AuditFinding(_Record):
    """A place where the audit log is not as it was written."""

    file: str
    #: In the file, from 1; 0 for the log as a whole.
    line: int
    what: str

    def __init__(
        self,
        file: str,
        line: int,
        what: str,
    ) -> None:
        self.file = file
        self.line = line
        self.what = what

    @classmethod
    def from_json(cls, v: Any) -> AuditFinding:
        return cls(
            file=v['file'],
            line=v['line'],
            what=v['what'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'file': self.file,
                'line': self.line,
                'what': self.what,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class AuditVerification(_Record):
    """Whether the audit log is as it was written."""

    #: No line was changed, taken out, put in or moved.
    ok: bool
    lines: int
    #: The number of the first line.
    first: int
    last: int
    #: Names the last line, as SEQ:HASH.
    head: str
    #: The marks of the log itself about its gaps, at most 100.
    notes: list[str]
    #: At most 100.
    findings: list[AuditFinding]

    def __init__(
        self,
        ok: bool,
        lines: int,
        first: int,
        last: int,
        head: str,
        notes: list[str],
        findings: list[AuditFinding],
    ) -> None:
        self.ok = ok
        self.lines = lines
        self.first = first
        self.last = last
        self.head = head
        self.notes = notes
        self.findings = findings

    @classmethod
    def from_json(cls, v: Any) -> AuditVerification:
        return cls(
            ok=v['ok'],
            lines=v['lines'],
            first=v['first'],
            last=v['last'],
            head=v['head'],
            notes=list(v['notes'] or []),
            findings=[AuditFinding.from_json(x) for x in v['findings'] or []],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'ok': self.ok,
                'lines': self.lines,
                'first': self.first,
                'last': self.last,
                'head': self.head,
                'notes': self.notes,
                'findings': self.findings,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class BackupInfo(_Record):
    """A copy of a folder."""

    id: str
    #: The sandbox that it is of.
    sandbox_id: str
    dir: str
    #: Bytes that it takes, compressed.
    size: int
    created_at: datetime
    name: str | None = None
    expires_at: datetime | None = None

    def __init__(
        self,
        id: str,
        sandbox_id: str,
        dir: str,
        size: int,
        created_at: datetime,
        name: str | None = None,
        expires_at: datetime | None = None,
    ) -> None:
        self.id = id
        self.sandbox_id = sandbox_id
        self.dir = dir
        self.size = size
        self.created_at = created_at
        self.name = name
        self.expires_at = expires_at

    @classmethod
    def from_json(cls, v: Any) -> BackupInfo:
        return cls(
            id=v['id'],
            sandbox_id=v['sandboxId'],
            dir=v['dir'],
            size=v['size'],
            created_at=time_of(v['createdAt']),
            name=v.get('name'),
            expires_at=time_of(v['expiresAt']) if v.get('expiresAt') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'id': self.id,
                'sandboxId': self.sandbox_id,
                'dir': self.dir,
                'size': self.size,
                'createdAt': self.created_at,
                'name': self.name,
                'expiresAt': self.expires_at,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Brokering(_Record):
    """How a secret is kept out of sandboxes: programs get a placeholder, and the server adds the value to what they send to certain hosts."""

    #: Names of hosts, with the port unless it is 443: 1 to 16. For ANTHROPIC_API_KEY the default is api.anthropic.com.
    hosts: list[str] = field(default_factory=list)
    #: Where the value goes: replace puts it where the placeholder stands in a header; header:NAME, basic:USER and query:NAME set it. Default replace; for ANTHROPIC_API_KEY header:X-Api-Key.
    as_: str | None = None
    #: What the header is set to, with {} where the value stands. Default {}.
    format: str | None = None

    def __init__(
        self,
        hosts: list[str] | None = None,
        as_: str | None = None,
        format: str | None = None,
    ) -> None:
        self.hosts = hosts if hosts is not None else []
        self.as_ = as_
        self.format = format

    @classmethod
    def from_json(cls, v: Any) -> Brokering:
        return cls(
            hosts=list(v.get('hosts') or []),
            as_=v.get('as'),
            format=v.get('format'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'hosts': self.hosts or None,
                'as': self.as_,
                'format': self.format,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class BuildEvent(_Record):
    """Something that happens in a build."""

    #: From 1; 0 for what is about the Dockerfile.
    step: int
    #: queued (the first event), started, log, cached, done, failed or warning.
    state: str
    #: Name of the step, in the event started.
    name: str | None = None
    #: Output of the command, or why it failed.
    text: str | None = None
    #: Seconds since the step started.
    seconds: float | None = None
    #: Id of the build, in the event queued.
    build: str | None = None

    def __init__(
        self,
        step: int,
        state: str,
        name: str | None = None,
        text: str | None = None,
        seconds: float | None = None,
        build: str | None = None,
    ) -> None:
        self.step = step
        self.state = state
        self.name = name
        self.text = text
        self.seconds = seconds
        self.build = build

    @classmethod
    def from_json(cls, v: Any) -> BuildEvent:
        return cls(
            step=v['step'],
            state=v['state'],
            name=v.get('name'),
            text=v.get('text'),
            seconds=v.get('seconds'),
            build=v.get('build'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'step': self.step,
                'state': self.state,
                'name': self.name,
                'text': self.text,
                'seconds': self.seconds,
                'build': self.build,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class BuildInfo(_Record):
    """A build that runs, or has ended."""

    build_id: str
    #: running (also while it waits for an earlier build), built, failed or cancelled.
    status: str
    started_at: datetime
    #: How many steps have begun.
    steps: int
    #: Name of the image, as in the request.
    name: str | None = None
    owner: str | None = None
    ended_at: datetime | None = None
    #: Name of the newest step.
    step: str | None = None
    #: Id of the built image.
    image: str | None = None
    #: Why it failed.
    error: str | None = None

    def __init__(
        self,
        build_id: str,
        status: str,
        started_at: datetime,
        steps: int,
        name: str | None = None,
        owner: str | None = None,
        ended_at: datetime | None = None,
        step: str | None = None,
        image: str | None = None,
        error: str | None = None,
    ) -> None:
        self.build_id = build_id
        self.status = status
        self.started_at = started_at
        self.steps = steps
        self.name = name
        self.owner = owner
        self.ended_at = ended_at
        self.step = step
        self.image = image
        self.error = error

    @classmethod
    def from_json(cls, v: Any) -> BuildInfo:
        return cls(
            build_id=v['buildId'],
            status=v['status'],
            started_at=time_of(v['startedAt']),
            steps=v['steps'],
            name=v.get('name'),
            owner=v.get('owner'),
            ended_at=time_of(v['endedAt']) if v.get('endedAt') is not None else None,
            step=v.get('step'),
            image=v.get('image'),
            error=v.get('error'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'buildId': self.build_id,
                'status': self.status,
                'startedAt': self.started_at,
                'steps': self.steps,
                'name': self.name,
                'owner': self.owner,
                'endedAt': self.ended_at,
                'step': self.step,
                'image': self.image,
                'error': self.error,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class BuildOutput(_Record):
    """The output of a build."""

    build: BuildInfo
    events: list[BuildEvent]

    def __init__(
        self,
        build: BuildInfo,
        events: list[BuildEvent],
    ) -> None:
        self.build = build
        self.events = events

    @classmethod
    def from_json(cls, v: Any) -> BuildOutput:
        return cls(
            build=BuildInfo.from_json(v['build']),
            events=[BuildEvent.from_json(x) for x in v['events'] or []],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'build': self.build,
                'events': self.events,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ConnectionInfo(_Record):
    """An attempt to connect or to ask for a name, or a request on a connection."""

    #: The place of the line in the log.
    cursor: int
    id: int
    time: datetime
    #: The most that is known of it: tcp, udp, dns, tls or http.
    protocol: str
    #: The name that was asked for, or else the address.
    host: str
    verdict: Literal["allowed", "denied"]
    #: Bytes, by the sandbox.
    sent: int
    received: int
    #: Seconds, when it has ended.
    duration: float
    #: Attempts alike that this line stands for.
    count: int
    address: str | None = None
    port: int | None = None
    #: The rule that allowed it.
    rule: str | None = None
    #: Why it was denied, failed or was cut, and the fix.
    reason: str | None = None
    #: Method of an HTTP request.
    method: str | None = None
    #: Status of the answer to the request.
    status: int | None = None
    #: It has not ended.
    open: bool = False

    def __init__(
        self,
        cursor: int,
        id: int,
        time: datetime,
        protocol: str,
        host: str,
        verdict: Literal["allowed", "denied"],
        sent: int,
        received: int,
        duration: float,
        count: int,
        address: str | None = None,
        port: int | None = None,
        rule: str | None = None,
        reason: str | None = None,
        method: str | None = None,
        status: int | None = None,
        open: bool = False,
    ) -> None:
        self.cursor = cursor
        self.id = id
        self.time = time
        self.protocol = protocol
        self.host = host
        self.verdict = verdict
        self.sent = sent
        self.received = received
        self.duration = duration
        self.count = count
        self.address = address
        self.port = port
        self.rule = rule
        self.reason = reason
        self.method = method
        self.status = status
        self.open = open

    @classmethod
    def from_json(cls, v: Any) -> ConnectionInfo:
        return cls(
            cursor=v['cursor'],
            id=v['id'],
            time=time_of(v['time']),
            protocol=v['protocol'],
            host=v['host'],
            verdict=v['verdict'],
            sent=v['sent'],
            received=v['received'],
            duration=v['duration'],
            count=v['count'],
            address=v.get('address'),
            port=v.get('port'),
            rule=v.get('rule'),
            reason=v.get('reason'),
            method=v.get('method'),
            status=v.get('status'),
            open=v.get('open') or False,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'cursor': self.cursor,
                'id': self.id,
                'time': self.time,
                'protocol': self.protocol,
                'host': self.host,
                'verdict': self.verdict,
                'sent': self.sent,
                'received': self.received,
                'duration': self.duration,
                'count': self.count,
                'address': self.address,
                'port': self.port,
                'rule': self.rule,
                'reason': self.reason,
                'method': self.method,
                'status': self.status,
                'open': self.open or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ConnectionLog(_Record):
    """A part of the log."""

    connections: list[ConnectionInfo]
    #: The cursor to continue after.
    next: int

    def __init__(
        self,
        connections: list[ConnectionInfo],
        next: int,
    ) -> None:
        self.connections = connections
        self.next = next

    @classmethod
    def from_json(cls, v: Any) -> ConnectionLog:
        return cls(
            connections=[ConnectionInfo.from_json(x) for x in v['connections'] or []],
            next=v['next'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'connections': self.connections,
                'next': self.next,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Consumption(_Record):
    """What a sandbox has used since it was made."""

    cpu_seconds: float
    #: The most memory, in MiB.
    memory_peak: float

    def __init__(
        self,
        cpu_seconds: float,
        memory_peak: float,
    ) -> None:
        self.cpu_seconds = cpu_seconds
        self.memory_peak = memory_peak

    @classmethod
    def from_json(cls, v: Any) -> Consumption:
        return cls(
            cpu_seconds=v['cpuSeconds'],
            memory_peak=v['memoryPeak'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'cpuSeconds': self.cpu_seconds,
                'memoryPeak': self.memory_peak,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ContextInfo(_Record):
    """The record of a context."""

    context_id: str
    sandbox_id: str
    language: str
    cwd: str
    created_at: datetime
    last_used_at: datetime
    execution_count: int
    busy: bool

    def __init__(
        self,
        context_id: str,
        sandbox_id: str,
        language: str,
        cwd: str,
        created_at: datetime,
        last_used_at: datetime,
        execution_count: int,
        busy: bool,
    ) -> None:
        self.context_id = context_id
        self.sandbox_id = sandbox_id
        self.language = language
        self.cwd = cwd
        self.created_at = created_at
        self.last_used_at = last_used_at
        self.execution_count = execution_count
        self.busy = busy

    @classmethod
    def from_json(cls, v: Any) -> ContextInfo:
        return cls(
            context_id=v['contextId'],
            sandbox_id=v['sandboxId'],
            language=v['language'],
            cwd=v['cwd'],
            created_at=time_of(v['createdAt']),
            last_used_at=time_of(v['lastUsedAt']),
            execution_count=v['executionCount'],
            busy=v['busy'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'contextId': self.context_id,
                'sandboxId': self.sandbox_id,
                'language': self.language,
                'cwd': self.cwd,
                'createdAt': self.created_at,
                'lastUsedAt': self.last_used_at,
                'executionCount': self.execution_count,
                'busy': self.busy,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Destruction(_Record):
    """The receipt for a destroyed sandbox."""

    sandbox_id: str
    #: Always destroyed.
    status: Literal["creating", "running", "paused", "hibernated", "stopped", "error", "destroyed"]
    resources_released: bool
    destroyed_at: datetime

    def __init__(
        self,
        sandbox_id: str,
        status: Literal["creating", "running", "paused", "hibernated", "stopped", "error", "destroyed"],
        resources_released: bool,
        destroyed_at: datetime,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.status = status
        self.resources_released = resources_released
        self.destroyed_at = destroyed_at

    @classmethod
    def from_json(cls, v: Any) -> Destruction:
        return cls(
            sandbox_id=v['sandboxId'],
            status=v['status'],
            resources_released=v['resourcesReleased'],
            destroyed_at=time_of(v['destroyedAt']),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'sandboxId': self.sandbox_id,
                'status': self.status,
                'resourcesReleased': self.resources_released,
                'destroyedAt': self.destroyed_at,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Edit(_Record):
    """Says what an edit did."""

    file: FileInfo
    replacements: int
    #: Line of the first replacement, from 1.
    line: int

    def __init__(
        self,
        file: FileInfo,
        replacements: int,
        line: int,
    ) -> None:
        self.file = file
        self.replacements = replacements
        self.line = line

    @classmethod
    def from_json(cls, v: Any) -> Edit:
        return cls(
            file=FileInfo.from_json(v['file']),
            replacements=v['replacements'],
            line=v['line'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'file': self.file,
                'replacements': self.replacements,
                'line': self.line,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Environment(_Record):
    """Tells which credentials are present, never their values."""

    has_anthropic_credentials: bool

    def __init__(
        self,
        has_anthropic_credentials: bool,
    ) -> None:
        self.has_anthropic_credentials = has_anthropic_credentials

    @classmethod
    def from_json(cls, v: Any) -> Environment:
        return cls(
            has_anthropic_credentials=v['hasAnthropicCredentials'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'hasAnthropicCredentials': self.has_anthropic_credentials,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Examination(_Record):
    """What was found on the machine of a server."""

    parts: list[ExaminedPart]

    def __init__(
        self,
        parts: list[ExaminedPart],
    ) -> None:
        self.parts = parts

    @classmethod
    def from_json(cls, v: Any) -> Examination:
        return cls(
            parts=[ExaminedPart.from_json(x) for x in v['parts'] or []],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'parts': self.parts,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ExaminedPart(_Record):
    """One part of a server."""

    #: The name of a runtime, or "image host" for the programs of the machine.
    part: str
    #: It is a runtime.
    runtime: bool
    #: It works.
    ok: bool
    findings: list[Finding]

    def __init__(
        self,
        part: str,
        runtime: bool,
        ok: bool,
        findings: list[Finding],
    ) -> None:
        self.part = part
        self.runtime = runtime
        self.ok = ok
        self.findings = findings

    @classmethod
    def from_json(cls, v: Any) -> ExaminedPart:
        return cls(
            part=v['part'],
            runtime=v['runtime'],
            ok=v['ok'],
            findings=[Finding.from_json(x) for x in v['findings'] or []],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'part': self.part,
                'runtime': self.runtime,
                'ok': self.ok,
                'findings': self.findings,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ExposedPort(_Record):
    """An exposed port."""

    sandbox_id: str
    port: int
    url: str
    token: str
    access: Literal["public", "private"]
    created_at: datetime
    name: str | None = None
    #: What the server in the sandbox speaks; left out for http.
    protocol: Literal["http", "https"] | None = None

    def __init__(
        self,
        sandbox_id: str,
        port: int,
        url: str,
        token: str,
        access: Literal["public", "private"],
        created_at: datetime,
        name: str | None = None,
        protocol: Literal["http", "https"] | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.port = port
        self.url = url
        self.token = token
        self.access = access
        self.created_at = created_at
        self.name = name
        self.protocol = protocol

    @classmethod
    def from_json(cls, v: Any) -> ExposedPort:
        return cls(
            sandbox_id=v['sandboxId'],
            port=v['port'],
            url=v['url'],
            token=v['token'],
            access=v['access'],
            created_at=time_of(v['createdAt']),
            name=v.get('name'),
            protocol=v.get('protocol'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'sandboxId': self.sandbox_id,
                'port': self.port,
                'url': self.url,
                'token': self.token,
                'access': self.access,
                'createdAt': self.created_at,
                'name': self.name,
                'protocol': self.protocol,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class FileChange(_Record):
    """A file that differs: in its type, mode, owner, size, target or content."""

    change: Literal["added", "changed", "deleted"]
    #: The file in the snapshot; left out for an added file.
    before: FileInfo | None = None
    #: The file on the other side; left out for a deleted file.
    after: FileInfo | None = None
    #: The hunks of a unified difference, if the text was asked for and the content differs.
    patch: str | None = None
    #: Why the text that was asked for is missing: one side is not UTF-8, has more than 128 KiB, is another name of a file, or the answer has as much text as it can have.
    no_patch: Literal["binary", "large", "link", "limit"] | None = None

    def __init__(
        self,
        change: Literal["added", "changed", "deleted"],
        before: FileInfo | None = None,
        after: FileInfo | None = None,
        patch: str | None = None,
        no_patch: Literal["binary", "large", "link", "limit"] | None = None,
    ) -> None:
        self.change = change
        self.before = before
        self.after = after
        self.patch = patch
        self.no_patch = no_patch

    @classmethod
    def from_json(cls, v: Any) -> FileChange:
        return cls(
            change=v['change'],
            before=FileInfo.from_json(v['before']) if v.get('before') is not None else None,
            after=FileInfo.from_json(v['after']) if v.get('after') is not None else None,
            patch=v.get('patch'),
            no_patch=v.get('noPatch'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'change': self.change,
                'before': self.before,
                'after': self.after,
                'patch': self.patch,
                'noPatch': self.no_patch,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class FileEvent(_Record):
    """One change."""

    type: Literal["ready", "create", "modify", "delete", "move", "overflow", "ended"]
    path: str | None = None
    from_path: str | None = None
    directory: bool = False

    def __init__(
        self,
        type: Literal["ready", "create", "modify", "delete", "move", "overflow", "ended"],
        path: str | None = None,
        from_path: str | None = None,
        directory: bool = False,
    ) -> None:
        self.type = type
        self.path = path
        self.from_path = from_path
        self.directory = directory

    @classmethod
    def from_json(cls, v: Any) -> FileEvent:
        v = names_of(v)
        return cls(
            type=v['type'],
            path=v.get('path'),
            from_path=v.get('from'),
            directory=v.get('directory') or False,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'type': self.type,
                'path': self.path,
                'from': self.from_path,
                'directory': self.directory or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class FileInfo(_Record):
    """Describes a file."""

    #: Absolute, without . and .. in it.
    path: str
    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    #: Permissions in octal, such as 0644.
    mode: str
    #: The user that owns it, inside the sandbox.
    uid: int
    #: Its group, inside the sandbox.
    gid: int
    modified: datetime
    #: Where a symlink leads.
    target: str | None = None
    #: Extended attributes of a file or folder, by their names without 'user.'. Lists have them if asked.
    attributes: dict[str, str] = field(default_factory=dict)

    def __init__(
        self,
        path: str,
        name: str,
        type: Literal["file", "directory", "symlink", "other"],
        size: int,
        mode: str,
        uid: int,
        gid: int,
        modified: datetime,
        target: str | None = None,
        attributes: dict[str, str] | None = None,
    ) -> None:
        self.path = path
        self.name = name
        self.type = type
        self.size = size
        self.mode = mode
        self.uid = uid
        self.gid = gid
        self.modified = modified
        self.target = target
        self.attributes = attributes if attributes is not None else {}

    @classmethod
    def from_json(cls, v: Any) -> FileInfo:
        v = names_of(v)
        return cls(
            path=v['path'],
            name=v['name'],
            type=v['type'],
            size=v['size'],
            mode=v['mode'],
            uid=v['uid'],
            gid=v['gid'],
            modified=time_of(v['modified']),
            target=v.get('target'),
            attributes=v.get('attributes') or {},
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'path': self.path,
                'name': self.name,
                'type': self.type,
                'size': self.size,
                'mode': self.mode,
                'uid': self.uid,
                'gid': self.gid,
                'modified': self.modified,
                'target': self.target,
                'attributes': self.attributes or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Finding(_Record):
    """One thing that was looked at."""

    name: str
    #: ok, warning or error.
    level: str
    #: What was found.
    detail: str
    #: How to fix it, as a command if there is one.
    fix: str | None = None

    def __init__(
        self,
        name: str,
        level: str,
        detail: str,
        fix: str | None = None,
    ) -> None:
        self.name = name
        self.level = level
        self.detail = detail
        self.fix = fix

    @classmethod
    def from_json(cls, v: Any) -> Finding:
        return cls(
            name=v['name'],
            level=v['level'],
            detail=v['detail'],
            fix=v.get('fix'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'name': self.name,
                'level': self.level,
                'detail': self.detail,
                'fix': self.fix,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class GitChange(_Record):
    """One changed file, with git's letters for what happened to it in the index and in the working tree: M, T, A, D, R, C, U, ? or a dot for nothing."""

    path: str
    index: str
    working_tree: str
    from_path: str | None = None

    def __init__(
        self,
        path: str,
        index: str,
        working_tree: str,
        from_path: str | None = None,
    ) -> None:
        self.path = path
        self.index = index
        self.working_tree = working_tree
        self.from_path = from_path

    @classmethod
    def from_json(cls, v: Any) -> GitChange:
        v = names_of(v)
        return cls(
            path=v['path'],
            index=v['index'],
            working_tree=v['workingTree'],
            from_path=v.get('from'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'path': self.path,
                'index': self.index,
                'workingTree': self.working_tree,
                'from': self.from_path,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class GitRepository(_Record):
    """The state of a repository."""

    #: Folder of its working tree, absolute.
    dir: str
    #: Empty when no branch is checked out.
    branch: str
    #: Empty if there are no commits yet.
    commit: str

    def __init__(
        self,
        dir: str,
        branch: str,
        commit: str,
    ) -> None:
        self.dir = dir
        self.branch = branch
        self.commit = commit

    @classmethod
    def from_json(cls, v: Any) -> GitRepository:
        return cls(
            dir=v['dir'],
            branch=v['branch'],
            commit=v['commit'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'dir': self.dir,
                'branch': self.branch,
                'commit': self.commit,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class GitStatus(_Record):
    """The state of a working tree."""

    #: Folder of its working tree, absolute.
    dir: str
    #: Empty when no branch is checked out.
    branch: str
    #: Empty if there are no commits yet.
    commit: str
    ahead: int
    behind: int
    clean: bool
    files: list[GitChange]
    #: The branch that ahead and behind count against.
    upstream: str | None = None

    def __init__(
        self,
        dir: str,
        branch: str,
        commit: str,
        ahead: int,
        behind: int,
        clean: bool,
        files: list[GitChange],
        upstream: str | None = None,
    ) -> None:
        self.dir = dir
        self.branch = branch
        self.commit = commit
        self.ahead = ahead
        self.behind = behind
        self.clean = clean
        self.files = files
        self.upstream = upstream

    @classmethod
    def from_json(cls, v: Any) -> GitStatus:
        return cls(
            dir=v['dir'],
            branch=v['branch'],
            commit=v['commit'],
            ahead=v['ahead'],
            behind=v['behind'],
            clean=v['clean'],
            files=[GitChange.from_json(x) for x in v['files'] or []],
            upstream=v.get('upstream'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'dir': self.dir,
                'branch': self.branch,
                'commit': self.commit,
                'ahead': self.ahead,
                'behind': self.behind,
                'clean': self.clean,
                'files': self.files,
                'upstream': self.upstream,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Grant(_Record):
    """Lets a token use another's sandbox."""

    sandbox_id: str
    token_id: str
    token_name: str
    access: Literal["read", "write"]
    created_at: datetime
    owner: str | None = None

    def __init__(
        self,
        sandbox_id: str,
        token_id: str,
        token_name: str,
        access: Literal["read", "write"],
        created_at: datetime,
        owner: str | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.token_id = token_id
        self.token_name = token_name
        self.access = access
        self.created_at = created_at
        self.owner = owner

    @classmethod
    def from_json(cls, v: Any) -> Grant:
        return cls(
            sandbox_id=v['sandboxId'],
            token_id=v['tokenId'],
            token_name=v['tokenName'],
            access=v['access'],
            created_at=time_of(v['createdAt']),
            owner=v.get('owner'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'sandboxId': self.sandbox_id,
                'tokenId': self.token_id,
                'tokenName': self.token_name,
                'access': self.access,
                'createdAt': self.created_at,
                'owner': self.owner,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class HeaderRule(_Record):
    """Sets headers of requests to a host. The exact host counts before *.example.com, and the longest of those; rules are not merged."""

    #: A name such as api.example.com, or *.example.com for all names below it; with the port unless it is 443.
    host: str
    #: Values by name. They are empty in every answer. In a request, an empty value keeps the present one. In a value, ${secrets.NAME} stands for a secret of the sandbox's owner, which each request gets as it is then.
    headers: dict[str, str]

    def __init__(
        self,
        host: str,
        headers: dict[str, str],
    ) -> None:
        self.host = host
        self.headers = headers

    @classmethod
    def from_json(cls, v: Any) -> HeaderRule:
        return cls(
            host=v['host'],
            headers=v['headers'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'host': self.host,
                'headers': self.headers,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class HealthCheck(_Record):
    """A command that says whether a process does its work, as HEALTHCHECK in a Dockerfile."""

    #: A command line, which runs as the process's user, in its folder and environment. Exit code 0 says that the process is healthy.
    command: str
    #: Seconds from one check to the next; default 30.
    interval: float | None = None
    #: Seconds after which a check is killed, and has failed; default 30.
    timeout: float | None = None
    #: Seconds after a start in which failures do not count; default 0.
    start_period: float | None = None
    #: Seconds between checks until one has succeeded; default 5, at most interval.
    start_interval: float | None = None
    #: Failures in a row that make the process unhealthy; default 3.
    retries: int | None = None

    def __init__(
        self,
        command: str,
        interval: float | None = None,
        timeout: float | None = None,
        start_period: float | None = None,
        start_interval: float | None = None,
        retries: int | None = None,
    ) -> None:
        self.command = command
        self.interval = interval
        self.timeout = timeout
        self.start_period = start_period
        self.start_interval = start_interval
        self.retries = retries

    @classmethod
    def from_json(cls, v: Any) -> HealthCheck:
        return cls(
            command=v['command'],
            interval=v.get('interval'),
            timeout=v.get('timeout'),
            start_period=v.get('startPeriod'),
            start_interval=v.get('startInterval'),
            retries=v.get('retries'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'command': self.command,
                'interval': self.interval,
                'timeout': self.timeout,
                'startPeriod': self.start_period,
                'startInterval': self.start_interval,
                'retries': self.retries,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ImageConfig(_Record):
    """What an image says about the programs in it."""

    #: NAME=VALUE.
    env: list[str] = field(default_factory=list)
    working_dir: str | None = None
    user: str | None = None
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    exposed_ports: list[str] = field(default_factory=list)
    stop_signal: str | None = None
    #: Health check of a process that runs the image's program.
    healthcheck: HealthCheck | None = None

    def __init__(
        self,
        env: list[str] | None = None,
        working_dir: str | None = None,
        user: str | None = None,
        entrypoint: list[str] | None = None,
        command: list[str] | None = None,
        labels: dict[str, str] | None = None,
        exposed_ports: list[str] | None = None,
        stop_signal: str | None = None,
        healthcheck: HealthCheck | None = None,
    ) -> None:
        self.env = env if env is not None else []
        self.working_dir = working_dir
        self.user = user
        self.entrypoint = entrypoint if entrypoint is not None else []
        self.command = command if command is not None else []
        self.labels = labels if labels is not None else {}
        self.exposed_ports = exposed_ports if exposed_ports is not None else []
        self.stop_signal = stop_signal
        self.healthcheck = healthcheck

    @classmethod
    def from_json(cls, v: Any) -> ImageConfig:
        return cls(
            env=list(v.get('env') or []),
            working_dir=v.get('workingDir'),
            user=v.get('user'),
            entrypoint=list(v.get('entrypoint') or []),
            command=list(v.get('command') or []),
            labels=v.get('labels') or {},
            exposed_ports=list(v.get('exposedPorts') or []),
            stop_signal=v.get('stopSignal'),
            healthcheck=HealthCheck.from_json(v['healthcheck']) if v.get('healthcheck') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'env': self.env or None,
                'workingDir': self.working_dir,
                'user': self.user,
                'entrypoint': self.entrypoint or None,
                'command': self.command or None,
                'labels': self.labels or None,
                'exposedPorts': self.exposed_ports or None,
                'stopSignal': self.stop_signal,
                'healthcheck': self.healthcheck,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ImageInfo(_Record):
    """A root file system that sandboxes can have."""

    #: Digest of the manifest.
    id: str
    #: References.
    names: list[str]
    #: Bytes on disk, of layers that other images share too.
    size: int
    pulled_at: datetime
    #: When a sandbox last began with it.
    used_at: datetime
    architecture: str
    #: Digests.
    layers: list[str]
    config: ImageConfig
    owner: str | None = None
    #: Open to all owners.
    shared: bool = False
    #: When it was built, if it says so.
    created_at: datetime | None = None

    def __init__(
        self,
        id: str,
        names: list[str],
        size: int,
        pulled_at: datetime,
        used_at: datetime,
        architecture: str,
        layers: list[str],
        config: ImageConfig,
        owner: str | None = None,
        shared: bool = False,
        created_at: datetime | None = None,
    ) -> None:
        self.id = id
        self.names = names
        self.size = size
        self.pulled_at = pulled_at
        self.used_at = used_at
        self.architecture = architecture
        self.layers = layers
        self.config = config
        self.owner = owner
        self.shared = shared
        self.created_at = created_at

    @classmethod
    def from_json(cls, v: Any) -> ImageInfo:
        return cls(
            id=v['id'],
            names=list(v['names'] or []),
            size=v['size'],
            pulled_at=time_of(v['pulledAt']),
            used_at=time_of(v['usedAt']),
            architecture=v['architecture'],
            layers=list(v['layers'] or []),
            config=ImageConfig.from_json(v['config']),
            owner=v.get('owner'),
            shared=v.get('shared') or False,
            created_at=time_of(v['createdAt']) if v.get('createdAt') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'id': self.id,
                'names': self.names,
                'size': self.size,
                'pulledAt': self.pulled_at,
                'usedAt': self.used_at,
                'architecture': self.architecture,
                'layers': self.layers,
                'config': self.config,
                'owner': self.owner,
                'shared': self.shared or None,
                'createdAt': self.created_at,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class InstanceType(_Record):
    """A size of a sandbox that has a name."""

    name: str
    #: Cores.
    cpu: float
    #: MiB.
    memory: int
    #: MiB of written files.
    disk: int

    def __init__(
        self,
        name: str,
        cpu: float,
        memory: int,
        disk: int,
    ) -> None:
        self.name = name
        self.cpu = cpu
        self.memory = memory
        self.disk = disk

    @classmethod
    def from_json(cls, v: Any) -> InstanceType:
        return cls(
            name=v['name'],
            cpu=v['cpu'],
            memory=v['memory'],
            disk=v['disk'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'name': self.name,
                'cpu': self.cpu,
                'memory': self.memory,
                'disk': self.disk,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Language(_Record):
    """A language of a sandbox."""

    name: str
    aliases: list[str]
    #: Version that the interpreter or compiler reports; empty if it reports none.
    version: str
    #: Whether there are code contexts in it.
    contexts: bool

    def __init__(
        self,
        name: str,
        aliases: list[str],
        version: str,
        contexts: bool,
    ) -> None:
        self.name = name
        self.aliases = aliases
        self.version = version
        self.contexts = contexts

    @classmethod
    def from_json(cls, v: Any) -> Language:
        return cls(
            name=v['name'],
            aliases=list(v['aliases'] or []),
            version=v['version'],
            contexts=v['contexts'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'name': self.name,
                'aliases': self.aliases,
                'version': self.version,
                'contexts': self.contexts,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Limits(_Record):
    """What one sandbox may use. Zero is the default."""

    #: Cores; default 1.
    cpu: float | None = None
    #: MiB; default 512, at least 32.
    memory: int | None = None
    #: MiB of written files; default 1024, on native half of memory.
    disk: int | None = None
    #: Processes and threads; default 512.
    pids: int | None = None
    #: Background processes at once; default 10.
    processes: int | None = None

    def __init__(
        self,
        cpu: float | None = None,
        memory: int | None = None,
        disk: int | None = None,
        pids: int | None = None,
        processes: int | None = None,
    ) -> None:
        self.cpu = cpu
        self.memory = memory
        self.disk = disk
        self.pids = pids
        self.processes = processes

    @classmethod
    def from_json(cls, v: Any) -> Limits:
        return cls(
            cpu=v.get('cpu'),
            memory=v.get('memory'),
            disk=v.get('disk'),
            pids=v.get('pids'),
            processes=v.get('processes'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'cpu': self.cpu,
                'memory': self.memory,
                'disk': self.disk,
                'pids': self.pids,
                'processes': self.processes,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Match(_Record):
    """A line that matched."""

    path: str
    #: Line, from 1.
    line: int
    #: Column in bytes, from 1.
    column: int
    #: The line, at most 1 KiB of it, made UTF-8.
    text: str

    def __init__(
        self,
        path: str,
        line: int,
        column: int,
        text: str,
    ) -> None:
        self.path = path
        self.line = line
        self.column = column
        self.text = text

    @classmethod
    def from_json(cls, v: Any) -> Match:
        v = names_of(v)
        return cls(
            path=v['path'],
            line=v['line'],
            column=v['column'],
            text=v['text'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'path': self.path,
                'line': self.line,
                'column': self.column,
                'text': self.text,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class MintedToken(_Record):
    """A token with its secret."""

    token_id: str
    name: str
    scopes: list[Literal["read", "exec", "files", "ports", "admin"]]
    limits: TokenLimits
    created_at: datetime
    #: What to send as Authorization: Bearer. The server keeps a hash of it.
    token: str
    #: The most that its sandboxes may reach; without it, the server's default.
    network: Network | None = None
    #: The registries that its images come from and go to, among those of the server; without it, all of these.
    registries: list[str] = field(default_factory=list)
    expires_at: datetime | None = None
    #: Time of the last use, accurate to ten minutes.
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None

    def __init__(
        self,
        token_id: str,
        name: str,
        scopes: list[Literal["read", "exec", "files", "ports", "admin"]],
        limits: TokenLimits,
        created_at: datetime,
        token: str,
        network: Network | None = None,
        registries: list[str] | None = None,
        expires_at: datetime | None = None,
        last_used_at: datetime | None = None,
        revoked_at: datetime | None = None,
    ) -> None:
        self.token_id = token_id
        self.name = name
        self.scopes = scopes
        self.limits = limits
        self.created_at = created_at
        self.token = token
        self.network = network
        self.registries = registries if registries is not None else []
        self.expires_at = expires_at
        self.last_used_at = last_used_at
        self.revoked_at = revoked_at

    @classmethod
    def from_json(cls, v: Any) -> MintedToken:
        return cls(
            token_id=v['tokenId'],
            name=v['name'],
            scopes=list(v['scopes'] or []),
            limits=TokenLimits.from_json(v['limits']),
            created_at=time_of(v['createdAt']),
            token=v['token'],
            network=Network.from_json(v['network']) if v.get('network') is not None else None,
            registries=list(v.get('registries') or []),
            expires_at=time_of(v['expiresAt']) if v.get('expiresAt') is not None else None,
            last_used_at=time_of(v['lastUsedAt']) if v.get('lastUsedAt') is not None else None,
            revoked_at=time_of(v['revokedAt']) if v.get('revokedAt') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'tokenId': self.token_id,
                'name': self.name,
                'scopes': self.scopes,
                'limits': self.limits,
                'createdAt': self.created_at,
                'token': self.token,
                'network': self.network,
                'registries': self.registries or None,
                'expiresAt': self.expires_at,
                'lastUsedAt': self.last_used_at,
                'revokedAt': self.revoked_at,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ModelUsage(_Record):
    """Tokens of a model."""

    #: Input tokens, with those written to and read from the model's own cache.
    input_tokens: int
    output_tokens: int
    #: Cost by the server's prices, if it has any for the model.
    cost: float | None = None

    def __init__(
        self,
        input_tokens: int,
        output_tokens: int,
        cost: float | None = None,
    ) -> None:
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.cost = cost

    @classmethod
    def from_json(cls, v: Any) -> ModelUsage:
        return cls(
            input_tokens=v['inputTokens'],
            output_tokens=v['outputTokens'],
            cost=v.get('cost'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'inputTokens': self.input_tokens,
                'outputTokens': self.output_tokens,
                'cost': self.cost,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Network(_Record):
    """What a sandbox may reach. An empty one, in a request, is the server's default."""

    #: Nothing, what a rule allows, or every public address. Default allow-list.
    mode: Literal["none", "allow-list", "open"] | None = None
    #: Rules: example.com (at ports 80 and 443), *.example.com, example.com:22, example.com:*, 203.0.113.7, 10.1.0.0/16:5432, [2001:db8::]/32:443.
    allow: list[str] = field(default_factory=list)
    #: Addresses and nets that are not reached in any mode, such as 203.0.113.0/24 or 0.0.0.0/0:25. Only a rule of allow about the same or a narrower net wins over it.
    block: list[str] = field(default_factory=list)
    #: Other sandboxes of the same owner, whose ports are reached as NAME.sandbox.internal: NAME, or NAME=SANDBOX.
    links: list[str] = field(default_factory=list)
    #: Headers that the server sets in requests to some hosts over TLS. The sandbox does not get the values, and a rule gives no access to its host.
    headers: list[HeaderRule] = field(default_factory=list)
    proxy: NetworkProxy | None = None
    limits: NetworkLimits | None = None

    def __init__(
        self,
        mode: Literal["none", "allow-list", "open"] | None = None,
        allow: list[str] | None = None,
        block: list[str] | None = None,
        links: list[str] | None = None,
        headers: list[HeaderRule] | None = None,
        proxy: NetworkProxy | None = None,
        limits: NetworkLimits | None = None,
    ) -> None:
        self.mode = mode
        self.allow = allow if allow is not None else []
        self.block = block if block is not None else []
        self.links = links if links is not None else []
        self.headers = headers if headers is not None else []
        self.proxy = proxy
        self.limits = limits

    @classmethod
    def from_json(cls, v: Any) -> Network:
        return cls(
            mode=v.get('mode'),
            allow=list(v.get('allow') or []),
            block=list(v.get('block') or []),
            links=list(v.get('links') or []),
            headers=[HeaderRule.from_json(x) for x in v.get('headers') or []],
            proxy=NetworkProxy.from_json(v['proxy']) if v.get('proxy') is not None else None,
            limits=NetworkLimits.from_json(v['limits']) if v.get('limits') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'mode': self.mode,
                'allow': self.allow or None,
                'block': self.block or None,
                'links': self.links or None,
                'headers': self.headers or None,
                'proxy': self.proxy,
                'limits': self.limits,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class NetworkLimits(_Record):
    """Bounds on what a sandbox takes of the network."""

    #: Most connections at once; default 256.
    connections: int | None = None
    #: New connections in a second; default 100.
    rate: int | None = None
    #: Most bytes a second of both directions together; default unbounded.
    bytes_per_second: int | None = None
    #: While the server runs; default unbounded.
    total_bytes: int | None = None

    def __init__(
        self,
        connections: int | None = None,
        rate: int | None = None,
        bytes_per_second: int | None = None,
        total_bytes: int | None = None,
    ) -> None:
        self.connections = connections
        self.rate = rate
        self.bytes_per_second = bytes_per_second
        self.total_bytes = total_bytes

    @classmethod
    def from_json(cls, v: Any) -> NetworkLimits:
        return cls(
            connections=v.get('connections'),
            rate=v.get('rate'),
            bytes_per_second=v.get('bytesPerSecond'),
            total_bytes=v.get('totalBytes'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'connections': self.connections,
                'rate': self.rate,
                'bytesPerSecond': self.bytes_per_second,
                'totalBytes': self.total_bytes,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class NetworkProxy(_Record):
    """A SOCKS5 server through which the sandbox's TCP connections leave, after the rules have allowed them. The sandbox does not see it. UDP is refused, and if the proxy cannot be reached, connections fail."""

    #: A name or an IP address, with a port, such as proxy.example.com:1080. A name must have public addresses.
    address: str
    #: At most 255 bytes; left out for a proxy that wants no credentials.
    username: str | None = None
    #: At most 255 bytes. It is missing in every answer. In a request, an empty one keeps the present one for the same address and user name.
    password: str | None = None

    def __init__(
        self,
        address: str,
        username: str | None = None,
        password: str | None = None,
    ) -> None:
        self.address = address
        self.username = username
        self.password = password

    @classmethod
    def from_json(cls, v: Any) -> NetworkProxy:
        return cls(
            address=v['address'],
            username=v.get('username'),
            password=v.get('password'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'address': self.address,
                'username': self.username,
                'password': self.password,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class NetworkState(_Record):
    """What a sandbox may reach, and what it did."""

    sandbox_id: str
    network: Network
    traffic: Traffic
    #: Why the sandbox reaches nothing, even if rules allow it; left out otherwise.
    unavailable: str | None = None

    def __init__(
        self,
        sandbox_id: str,
        network: Network,
        traffic: Traffic,
        unavailable: str | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.network = network
        self.traffic = traffic
        self.unavailable = unavailable

    @classmethod
    def from_json(cls, v: Any) -> NetworkState:
        return cls(
            sandbox_id=v['sandboxId'],
            network=Network.from_json(v['network']),
            traffic=Traffic.from_json(v['traffic']),
            unavailable=v.get('unavailable'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'sandboxId': self.sandbox_id,
                'network': self.network,
                'traffic': self.traffic,
                'unavailable': self.unavailable,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Node(_Record):
    """One machine of a server."""

    id: str
    #: Where the other nodes reach it; empty on a server that is one machine.
    address: str
    #: Version of Hutch; empty for a node that never started.
    version: str
    #: A cordoned node gets no new sandboxes. One that is draining also hands over those that it has.
    state: Literal["ready", "cordoned", "draining"]
    #: Its lease has not run out.
    alive: bool
    #: How often its server started.
    epoch: int
    room: NodeRoom
    promised: NodeRoom
    #: Sandboxes, awake or asleep.
    held: int
    #: Sandboxes that cannot leave the node, which is draining.
    stuck: int
    #: Snapshots and templates on the node. An old copy of one that another node has does not count.
    snapshots: int
    #: For the nodeSelector of sandboxes.
    labels: dict[str, str] = field(default_factory=dict)
    #: Only sandboxes that tolerate all of these are placed there.
    taints: dict[str, str] = field(default_factory=dict)
    #: When it joined the fleet.
    joined: datetime | None = None
    #: When its server began; absent for a node that never did.
    started: datetime | None = None
    #: The end of its lease; absent for a node that never began.
    seen_until: datetime | None = None
    #: First the sandboxes that cannot leave, then the oldest; at most 1000. Only in the answer about one node.
    sandboxes: list[NodeSandbox] = field(default_factory=list)

    def __init__(
        self,
        id: str,
        address: str,
        version: str,
        state: Literal["ready", "cordoned", "draining"],
        alive: bool,
        epoch: int,
        room: NodeRoom,
        promised: NodeRoom,
        held: int,
        stuck: int,
        snapshots: int,
        labels: dict[str, str] | None = None,
        taints: dict[str, str] | None = None,
        joined: datetime | None = None,
        started: datetime | None = None,
        seen_until: datetime | None = None,
        sandboxes: list[NodeSandbox] | None = None,
    ) -> None:
        self.id = id
        self.address = address
        self.version = version
        self.state = state
        self.alive = alive
        self.epoch = epoch
        self.room = room
        self.promised = promised
        self.held = held
        self.stuck = stuck
        self.snapshots = snapshots
        self.labels = labels if labels is not None else {}
        self.taints = taints if taints is not None else {}
        self.joined = joined
        self.started = started
        self.seen_until = seen_until
        self.sandboxes = sandboxes if sandboxes is not None else []

    @classmethod
    def from_json(cls, v: Any) -> Node:
        return cls(
            id=v['id'],
            address=v['address'],
            version=v['version'],
            state=v['state'],
            alive=v['alive'],
            epoch=v['epoch'],
            room=NodeRoom.from_json(v['room']),
            promised=NodeRoom.from_json(v['promised']),
            held=v['held'],
            stuck=v['stuck'],
            snapshots=v['snapshots'],
            labels=v.get('labels') or {},
            taints=v.get('taints') or {},
            joined=time_of(v['joined']) if v.get('joined') is not None else None,
            started=time_of(v['started']) if v.get('started') is not None else None,
            seen_until=time_of(v['seenUntil']) if v.get('seenUntil') is not None else None,
            sandboxes=[NodeSandbox.from_json(x) for x in v.get('sandboxes') or []],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'id': self.id,
                'address': self.address,
                'version': self.version,
                'state': self.state,
                'alive': self.alive,
                'epoch': self.epoch,
                'room': self.room,
                'promised': self.promised,
                'held': self.held,
                'stuck': self.stuck,
                'snapshots': self.snapshots,
                'labels': self.labels or None,
                'taints': self.taints or None,
                'joined': self.joined,
                'started': self.started,
                'seenUntil': self.seen_until,
                'sandboxes': self.sandboxes or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class NodeList(_Record):
    """The machines of a server."""

    #: Several machines can be this server. Otherwise it is the only one, and cannot be changed.
    fleet: bool
    nodes: list[Node]

    def __init__(
        self,
        fleet: bool,
        nodes: list[Node],
    ) -> None:
        self.fleet = fleet
        self.nodes = nodes

    @classmethod
    def from_json(cls, v: Any) -> NodeList:
        return cls(
            fleet=v['fleet'],
            nodes=[Node.from_json(x) for x in v['nodes'] or []],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'fleet': self.fleet,
                'nodes': self.nodes,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class NodeRoom(_Record):
    """An amount of a node's resources."""

    #: MiB.
    memory: int
    #: Cores.
    cpu: float
    sandboxes: int

    def __init__(
        self,
        memory: int,
        cpu: float,
        sandboxes: int,
    ) -> None:
        self.memory = memory
        self.cpu = cpu
        self.sandboxes = sandboxes

    @classmethod
    def from_json(cls, v: Any) -> NodeRoom:
        return cls(
            memory=v['memory'],
            cpu=v['cpu'],
            sandboxes=v['sandboxes'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'memory': self.memory,
                'cpu': self.cpu,
                'sandboxes': self.sandboxes,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class NodeSandbox(_Record):
    """A sandbox as the node knows it that holds it."""

    sandbox_id: str
    placed: datetime
    awake: bool
    #: It outlives its node.
    in_bucket: bool
    owner: str | None = None
    image: str | None = None
    #: Why it cannot leave a node that is draining.
    stays: str | None = None

    def __init__(
        self,
        sandbox_id: str,
        placed: datetime,
        awake: bool,
        in_bucket: bool,
        owner: str | None = None,
        image: str | None = None,
        stays: str | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.placed = placed
        self.awake = awake
        self.in_bucket = in_bucket
        self.owner = owner
        self.image = image
        self.stays = stays

    @classmethod
    def from_json(cls, v: Any) -> NodeSandbox:
        return cls(
            sandbox_id=v['sandboxId'],
            placed=time_of(v['placed']),
            awake=v['awake'],
            in_bucket=v['inBucket'],
            owner=v.get('owner'),
            image=v.get('image'),
            stays=v.get('stays'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'sandboxId': self.sandbox_id,
                'placed': self.placed,
                'awake': self.awake,
                'inBucket': self.in_bucket,
                'owner': self.owner,
                'image': self.image,
                'stays': self.stays,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Point(_Record):
    """A pixel of the screen, from its upper left corner."""

    x: int
    y: int

    def __init__(
        self,
        x: int,
        y: int,
    ) -> None:
        self.x = x
        self.y = y

    @classmethod
    def from_json(cls, v: Any) -> Point:
        return cls(
            x=v['x'],
            y=v['y'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'x': self.x,
                'y': self.y,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class PortEvent(_Record):
    """Tells of a server that has begun to listen or has stopped."""

    type: Literal["open", "close"]
    port: int
    #: When the port is exposed.
    url: str | None = None

    def __init__(
        self,
        type: Literal["open", "close"],
        port: int,
        url: str | None = None,
    ) -> None:
        self.type = type
        self.port = port
        self.url = url

    @classmethod
    def from_json(cls, v: Any) -> PortEvent:
        return cls(
            type=v['type'],
            port=v['port'],
            url=v.get('url'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'type': self.type,
                'port': self.port,
                'url': self.url,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class PortLink(_Record):
    """A URL that opens an exposed port for a while."""

    url: str
    expires_at: datetime

    def __init__(
        self,
        url: str,
        expires_at: datetime,
    ) -> None:
        self.url = url
        self.expires_at = expires_at

    @classmethod
    def from_json(cls, v: Any) -> PortLink:
        return cls(
            url=v['url'],
            expires_at=time_of(v['expiresAt']),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'url': self.url,
                'expiresAt': self.expires_at,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ProcessHealth(_Record):
    """What is known of the health of a process. Nothing follows from it: an unhealthy process is neither ended nor started again."""

    #: starting until a check has succeeded; unhealthy when as many checks as retries have failed in a row, and when the process does not run.
    status: Literal["starting", "healthy", "unhealthy"]
    #: Failed checks in a row, of those that count.
    failures: int
    #: Exit code of the last check, like the fields below; 124 for one that took too long.
    exit_code: int | None = None
    #: The beginning of what it printed.
    output: str | None = None
    checked_at: datetime | None = None

    def __init__(
        self,
        status: Literal["starting", "healthy", "unhealthy"],
        failures: int,
        exit_code: int | None = None,
        output: str | None = None,
        checked_at: datetime | None = None,
    ) -> None:
        self.status = status
        self.failures = failures
        self.exit_code = exit_code
        self.output = output
        self.checked_at = checked_at

    @classmethod
    def from_json(cls, v: Any) -> ProcessHealth:
        return cls(
            status=v['status'],
            failures=v['failures'],
            exit_code=v.get('exitCode'),
            output=v.get('output'),
            checked_at=time_of(v['checkedAt']) if v.get('checkedAt') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'status': self.status,
                'failures': self.failures,
                'exitCode': self.exit_code,
                'output': self.output,
                'checkedAt': self.checked_at,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ProcessInfo(_Record):
    """The record of one background process at one moment."""

    process_id: str
    sandbox_id: str
    name: str
    command: str
    status: Literal["starting", "running", "exited", "failed"]
    #: Inside the sandbox; 0 when it does not run.
    pid: int
    start_time: datetime
    restart_policy: Literal["never", "on-failure", "always"]
    restarts: int
    exit_code: int | None = None
    #: The signal that ended it; the exit code is then 128 more.
    signal: int | None = None
    end_time: datetime | None = None
    #: The size it has now.
    terminal: TerminalSize | None = None
    #: The signal that asks it to end, if it was started with one.
    stop_signal: int | None = None
    #: Health of a process that was started with a health check.
    health: ProcessHealth | None = None

    def __init__(
        self,
        process_id: str,
        sandbox_id: str,
        name: str,
        command: str,
        status: Literal["starting", "running", "exited", "failed"],
        pid: int,
        start_time: datetime,
        restart_policy: Literal["never", "on-failure", "always"],
        restarts: int,
        exit_code: int | None = None,
        signal: int | None = None,
        end_time: datetime | None = None,
        terminal: TerminalSize | None = None,
        stop_signal: int | None = None,
        health: ProcessHealth | None = None,
    ) -> None:
        self.process_id = process_id
        self.sandbox_id = sandbox_id
        self.name = name
        self.command = command
        self.status = status
        self.pid = pid
        self.start_time = start_time
        self.restart_policy = restart_policy
        self.restarts = restarts
        self.exit_code = exit_code
        self.signal = signal
        self.end_time = end_time
        self.terminal = terminal
        self.stop_signal = stop_signal
        self.health = health

    @classmethod
    def from_json(cls, v: Any) -> ProcessInfo:
        return cls(
            process_id=v['processId'],
            sandbox_id=v['sandboxId'],
            name=v['name'],
            command=v['command'],
            status=v['status'],
            pid=v['pid'],
            start_time=time_of(v['startTime']),
            restart_policy=v['restartPolicy'],
            restarts=v['restarts'],
            exit_code=v.get('exitCode'),
            signal=v.get('signal'),
            end_time=time_of(v['endTime']) if v.get('endTime') is not None else None,
            terminal=TerminalSize.from_json(v['terminal']) if v.get('terminal') is not None else None,
            stop_signal=v.get('stopSignal'),
            health=ProcessHealth.from_json(v['health']) if v.get('health') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'processId': self.process_id,
                'sandboxId': self.sandbox_id,
                'name': self.name,
                'command': self.command,
                'status': self.status,
                'pid': self.pid,
                'startTime': self.start_time,
                'restartPolicy': self.restart_policy,
                'restarts': self.restarts,
                'exitCode': self.exit_code,
                'signal': self.signal,
                'endTime': self.end_time,
                'terminal': self.terminal,
                'stopSignal': self.stop_signal,
                'health': self.health,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Program(_Record):
    """A program for a question."""

    language: str
    code: str
    #: 1 is the first.
    attempt: int
    #: It was known from an earlier question.
    cached: bool

    def __init__(
        self,
        language: str,
        code: str,
        attempt: int,
        cached: bool,
    ) -> None:
        self.language = language
        self.code = code
        self.attempt = attempt
        self.cached = cached

    @classmethod
    def from_json(cls, v: Any) -> Program:
        return cls(
            language=v['language'],
            code=v['code'],
            attempt=v['attempt'],
            cached=v['cached'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'language': self.language,
                'code': self.code,
                'attempt': self.attempt,
                'cached': self.cached,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Pruned(_Record):
    """What was removed."""

    #: Ids.
    images: list[str]
    #: Bytes of disk.
    freed: int

    def __init__(
        self,
        images: list[str],
        freed: int,
    ) -> None:
        self.images = images
        self.freed = freed

    @classmethod
    def from_json(cls, v: Any) -> Pruned:
        return cls(
            images=list(v['images'] or []),
            freed=v['freed'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'images': self.images,
                'freed': self.freed,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class RemovedNode(_Record):
    """What the removal of a node has freed."""

    node: str
    #: Sandboxes that were lost with it, and whose ids are free.
    freed: int

    def __init__(
        self,
        node: str,
        freed: int,
    ) -> None:
        self.node = node
        self.freed = freed

    @classmethod
    def from_json(cls, v: Any) -> RemovedNode:
        return cls(
            node=v['node'],
            freed=v['freed'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'node': self.node,
                'freed': self.freed,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Repair(_Record):
    """A program goes back to the model."""

    #: The one that failed.
    attempt: int
    #: The end of what went wrong.
    error: str

    def __init__(
        self,
        attempt: int,
        error: str,
    ) -> None:
        self.attempt = attempt
        self.error = error

    @classmethod
    def from_json(cls, v: Any) -> Repair:
        return cls(
            attempt=v['attempt'],
            error=v['error'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'attempt': self.attempt,
                'error': self.error,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Resources(_Record):
    """What a sandbox uses now."""

    #: Percent of one core since the last reading.
    cpu: float
    #: MiB.
    memory: float

    def __init__(
        self,
        cpu: float,
        memory: float,
    ) -> None:
        self.cpu = cpu
        self.memory = memory

    @classmethod
    def from_json(cls, v: Any) -> Resources:
        return cls(
            cpu=v['cpu'],
            memory=v['memory'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'cpu': self.cpu,
                'memory': self.memory,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class SandboxInfo(_Record):
    """The record of one sandbox at one moment."""

    sandbox_id: str
    status: Literal["creating", "running", "paused", "hibernated", "stopped", "error", "destroyed"]
    image: str
    runtime: str
    created_at: datetime
    last_used_at: datetime
    #: Seconds since it last started to run; 0 when it does not.
    uptime: float
    resources: Resources
    environment: Environment
    keep_alive: bool
    sleep_after: float
    on_idle: Literal["hibernate", "stop", "destroy"]
    health: Literal["healthy", "unhealthy", "asleep"]
    limits: Limits
    network: Network
    processes: list[ProcessInfo]
    #: Why the status is error or stopped.
    reason: str | None = None
    #: The status is paused: everything in it is frozen, in memory, until it is used or resumed.
    paused: bool = False
    owner: str | None = None
    #: User as requested; left out for the image's user.
    user: str | None = None
    #: The instance type that it was created with.
    instance_type: str | None = None
    #: The name of the template that it began as.
    template: str | None = None
    #: The id of the snapshot that it began as. The snapshot can be gone.
    snapshot: str | None = None
    #: The sandbox that it is a copy of, by a snapshot or a fork. It can be gone.
    parent: str | None = None
    #: It began with only the files of that sandbox, without its memory: filesOnly was set, or the runtime saves no memory.
    files_only: bool = False
    #: End of the hard lifetime.
    expires_at: datetime | None = None
    volumes: list[VolumeMount] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    #: Labels that its node must have.
    node_selector: dict[str, str] = field(default_factory=dict)
    #: Taints that its node can have.
    tolerations: dict[str, str] = field(default_factory=dict)

    def __init__(
        self,
        sandbox_id: str,
        status: Literal["creating", "running", "paused", "hibernated", "stopped", "error", "destroyed"],
        image: str,
        runtime: str,
        created_at: datetime,
        last_used_at: datetime,
        uptime: float,
        resources: Resources,
        environment: Environment,
        keep_alive: bool,
        sleep_after: float,
        on_idle: Literal["hibernate", "stop", "destroy"],
        health: Literal["healthy", "unhealthy", "asleep"],
        limits: Limits,
        network: Network,
        processes: list[ProcessInfo],
        reason: str | None = None,
        paused: bool = False,
        owner: str | None = None,
        user: str | None = None,
        instance_type: str | None = None,
        template: str | None = None,
        snapshot: str | None = None,
        parent: str | None = None,
        files_only: bool = False,
        expires_at: datetime | None = None,
        volumes: list[VolumeMount] | None = None,
        labels: dict[str, str] | None = None,
        node_selector: dict[str, str] | None = None,
        tolerations: dict[str, str] | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.status = status
        self.image = image
        self.runtime = runtime
        self.created_at = created_at
        self.last_used_at = last_used_at
        self.uptime = uptime
        self.resources = resources
        self.environment = environment
        self.keep_alive = keep_alive
        self.sleep_after = sleep_after
        self.on_idle = on_idle
        self.health = health
        self.limits = limits
        self.network = network
        self.processes = processes
        self.reason = reason
        self.paused = paused
        self.owner = owner
        self.user = user
        self.instance_type = instance_type
        self.template = template
        self.snapshot = snapshot
        self.parent = parent
        self.files_only = files_only
        self.expires_at = expires_at
        self.volumes = volumes if volumes is not None else []
        self.labels = labels if labels is not None else {}
        self.node_selector = node_selector if node_selector is not None else {}
        self.tolerations = tolerations if tolerations is not None else {}

    @classmethod
    def from_json(cls, v: Any) -> SandboxInfo:
        return cls(
            sandbox_id=v['sandboxId'],
            status=v['status'],
            image=v['image'],
            runtime=v['runtime'],
            created_at=time_of(v['createdAt']),
            last_used_at=time_of(v['lastUsedAt']),
            uptime=v['uptime'],
            resources=Resources.from_json(v['resources']),
            environment=Environment.from_json(v['environment']),
            keep_alive=v['keepAlive'],
            sleep_after=v['sleepAfter'],
            on_idle=v['onIdle'],
            health=v['health'],
            limits=Limits.from_json(v['limits']),
            network=Network.from_json(v['network']),
            processes=[ProcessInfo.from_json(x) for x in v['processes'] or []],
            reason=v.get('reason'),
            paused=v.get('paused') or False,
            owner=v.get('owner'),
            user=v.get('user'),
            instance_type=v.get('instanceType'),
            template=v.get('template'),
            snapshot=v.get('snapshot'),
            parent=v.get('parent'),
            files_only=v.get('filesOnly') or False,
            expires_at=time_of(v['expiresAt']) if v.get('expiresAt') is not None else None,
            volumes=[VolumeMount.from_json(x) for x in v.get('volumes') or []],
            labels=v.get('labels') or {},
            node_selector=v.get('nodeSelector') or {},
            tolerations=v.get('tolerations') or {},
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'sandboxId': self.sandbox_id,
                'status': self.status,
                'image': self.image,
                'runtime': self.runtime,
                'createdAt': self.created_at,
                'lastUsedAt': self.last_used_at,
                'uptime': self.uptime,
                'resources': self.resources,
                'environment': self.environment,
                'keepAlive': self.keep_alive,
                'sleepAfter': self.sleep_after,
                'onIdle': self.on_idle,
                'health': self.health,
                'limits': self.limits,
                'network': self.network,
                'processes': self.processes,
                'reason': self.reason,
                'paused': self.paused or None,
                'owner': self.owner,
                'user': self.user,
                'instanceType': self.instance_type,
                'template': self.template,
                'snapshot': self.snapshot,
                'parent': self.parent,
                'filesOnly': self.files_only or None,
                'expiresAt': self.expires_at,
                'volumes': self.volumes or None,
                'labels': self.labels or None,
                'nodeSelector': self.node_selector or None,
                'tolerations': self.tolerations or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ScreenAction(_Record):
    """One action of mouse or keyboard, as computer-use models name it."""

    action: Literal["mouse_move", "left_click", "right_click", "middle_click", "double_click", "triple_click", "left_click_drag", "left_mouse_down", "left_mouse_up", "scroll", "key", "hold_key", "type", "wait", "screenshot", "zoom", "cursor_position"]
    #: X and y. Without it a click is where the pointer is.
    coordinate: list[int] = field(default_factory=list)
    #: Where a drag begins, x and y; default: where the pointer is.
    start_coordinate: list[int] = field(default_factory=list)
    #: What to type; keys pressed together, such as ctrl+s; or the keys held during a click.
    text: str | None = None
    scroll_direction: Literal["up", "down", "left", "right"] | None = None
    #: Clicks of the wheel, up to 100; default 3.
    scroll_amount: int | None = None
    #: How long to wait or to hold keys, in seconds; up to 60 for all actions together.
    duration: float | None = None
    #: What zoom shows: x and y of the upper left and of the lower right corner.
    region: list[int] = field(default_factory=list)

    def __init__(
        self,
        action: Literal["mouse_move", "left_click", "right_click", "middle_click", "double_click", "triple_click", "left_click_drag", "left_mouse_down", "left_mouse_up", "scroll", "key", "hold_key", "type", "wait", "screenshot", "zoom", "cursor_position"],
        coordinate: list[int] | None = None,
        start_coordinate: list[int] | None = None,
        text: str | None = None,
        scroll_direction: Literal["up", "down", "left", "right"] | None = None,
        scroll_amount: int | None = None,
        duration: float | None = None,
        region: list[int] | None = None,
    ) -> None:
        self.action = action
        self.coordinate = coordinate if coordinate is not None else []
        self.start_coordinate = start_coordinate if start_coordinate is not None else []
        self.text = text
        self.scroll_direction = scroll_direction
        self.scroll_amount = scroll_amount
        self.duration = duration
        self.region = region if region is not None else []

    @classmethod
    def from_json(cls, v: Any) -> ScreenAction:
        return cls(
            action=v['action'],
            coordinate=list(v.get('coordinate') or []),
            start_coordinate=list(v.get('start_coordinate') or []),
            text=v.get('text'),
            scroll_direction=v.get('scroll_direction'),
            scroll_amount=v.get('scroll_amount'),
            duration=v.get('duration'),
            region=list(v.get('region') or []),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'action': self.action,
                'coordinate': self.coordinate or None,
                'start_coordinate': self.start_coordinate or None,
                'text': self.text,
                'scroll_direction': self.scroll_direction,
                'scroll_amount': self.scroll_amount,
                'duration': self.duration,
                'region': self.region or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class ScreenInfo(_Record):
    """A screen, with sizes in pixels."""

    width: int
    height: int
    cursor: Point

    def __init__(
        self,
        width: int,
        height: int,
        cursor: Point,
    ) -> None:
        self.width = width
        self.height = height
        self.cursor = cursor

    @classmethod
    def from_json(cls, v: Any) -> ScreenInfo:
        return cls(
            width=v['width'],
            height=v['height'],
            cursor=Point.from_json(v['cursor']),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'width': self.width,
                'height': self.height,
                'cursor': self.cursor,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class SecretInfo(_Record):
    """The record of a secret, without its value."""

    name: str
    #: Its value is redacted from all answers. A value of less than 6 bytes is not.
    redacted: bool
    labels: dict[str, str] = field(default_factory=dict)
    #: How many values it has had; missing for a secret of the server.
    version: int | None = None
    created_at: datetime | None = None
    #: It is the server's: every owner can use it, and no owner can change it.
    shared: bool = False
    updated_at: datetime | None = None
    brokered: Brokering | None = None

    def __init__(
        self,
        name: str,
        redacted: bool,
        labels: dict[str, str] | None = None,
        version: int | None = None,
        created_at: datetime | None = None,
        shared: bool = False,
        updated_at: datetime | None = None,
        brokered: Brokering | None = None,
    ) -> None:
        self.name = name
        self.redacted = redacted
        self.labels = labels if labels is not None else {}
        self.version = version
        self.created_at = created_at
        self.shared = shared
        self.updated_at = updated_at
        self.brokered = brokered

    @classmethod
    def from_json(cls, v: Any) -> SecretInfo:
        return cls(
            name=v['name'],
            redacted=v['redacted'],
            labels=v.get('labels') or {},
            version=v.get('version'),
            created_at=time_of(v['createdAt']) if v.get('createdAt') is not None else None,
            shared=v.get('shared') or False,
            updated_at=time_of(v['updatedAt']) if v.get('updatedAt') is not None else None,
            brokered=Brokering.from_json(v['brokered']) if v.get('brokered') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'name': self.name,
                'redacted': self.redacted,
                'labels': self.labels or None,
                'version': self.version,
                'createdAt': self.created_at,
                'shared': self.shared or None,
                'updatedAt': self.updated_at,
                'brokered': self.brokered,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class SharedTerminal(_Record):
    """A link to a terminal that was just made."""

    link_id: str
    sandbox_id: str
    process_id: str
    created_at: datetime
    expires_at: datetime
    #: What is to be opened at the server, such as https://hutch.example.com/watch#SECRET.
    path: str

    def __init__(
        self,
        link_id: str,
        sandbox_id: str,
        process_id: str,
        created_at: datetime,
        expires_at: datetime,
        path: str,
    ) -> None:
        self.link_id = link_id
        self.sandbox_id = sandbox_id
        self.process_id = process_id
        self.created_at = created_at
        self.expires_at = expires_at
        self.path = path

    @classmethod
    def from_json(cls, v: Any) -> SharedTerminal:
        return cls(
            link_id=v['linkId'],
            sandbox_id=v['sandboxId'],
            process_id=v['processId'],
            created_at=time_of(v['createdAt']),
            expires_at=time_of(v['expiresAt']),
            path=v['path'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'linkId': self.link_id,
                'sandboxId': self.sandbox_id,
                'processId': self.process_id,
                'createdAt': self.created_at,
                'expiresAt': self.expires_at,
                'path': self.path,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class SnapshotDiff(_Record):
    """What differs between the written files of a snapshot and those of another one, or of a sandbox."""

    #: The first side.
    snapshot_id: str
    #: The number of files that only the other side has.
    added: int
    changed: int
    #: The number of files that only the snapshot has.
    deleted: int
    #: Sorted by path.
    files: list[FileChange]
    #: The id of the other snapshot.
    to: str | None = None
    #: Or the sandbox.
    sandbox_id: str | None = None
    #: True if there were too many changes for one answer. The numbers count all of them.
    truncated: bool = False

    def __init__(
        self,
        snapshot_id: str,
        added: int,
        changed: int,
        deleted: int,
        files: list[FileChange],
        to: str | None = None,
        sandbox_id: str | None = None,
        truncated: bool = False,
    ) -> None:
        self.snapshot_id = snapshot_id
        self.added = added
        self.changed = changed
        self.deleted = deleted
        self.files = files
        self.to = to
        self.sandbox_id = sandbox_id
        self.truncated = truncated

    @classmethod
    def from_json(cls, v: Any) -> SnapshotDiff:
        return cls(
            snapshot_id=v['snapshotId'],
            added=v['added'],
            changed=v['changed'],
            deleted=v['deleted'],
            files=[FileChange.from_json(x) for x in v['files'] or []],
            to=v.get('to'),
            sandbox_id=v.get('sandboxId'),
            truncated=v.get('truncated') or False,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'snapshotId': self.snapshot_id,
                'added': self.added,
                'changed': self.changed,
                'deleted': self.deleted,
                'files': self.files,
                'to': self.to,
                'sandboxId': self.sandbox_id,
                'truncated': self.truncated or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class SnapshotInfo(_Record):
    """The record of a snapshot."""

    snapshot_id: str
    #: The sandbox that it was made of.
    sandbox_id: str
    created_at: datetime
    #: False if it has only the files.
    memory: bool
    #: Bytes on disk.
    size: int
    #: Seconds for which the sandbox stood still.
    stood: float
    image: str
    runtime: str
    limits: Limits
    #: The oldest of its names.
    name: str | None = None
    #: The oldest first; left out when it has none.
    names: list[str] = field(default_factory=list)
    owner: str | None = None
    shared: bool = False
    expires_at: datetime | None = None
    #: What a template says of its sandboxes; left out for other snapshots.
    template: TemplateInfo | None = None

    def __init__(
        self,
        snapshot_id: str,
        sandbox_id: str,
        created_at: datetime,
        memory: bool,
        size: int,
        stood: float,
        image: str,
        runtime: str,
        limits: Limits,
        name: str | None = None,
        names: list[str] | None = None,
        owner: str | None = None,
        shared: bool = False,
        expires_at: datetime | None = None,
        template: TemplateInfo | None = None,
    ) -> None:
        self.snapshot_id = snapshot_id
        self.sandbox_id = sandbox_id
        self.created_at = created_at
        self.memory = memory
        self.size = size
        self.stood = stood
        self.image = image
        self.runtime = runtime
        self.limits = limits
        self.name = name
        self.names = names if names is not None else []
        self.owner = owner
        self.shared = shared
        self.expires_at = expires_at
        self.template = template

    @classmethod
    def from_json(cls, v: Any) -> SnapshotInfo:
        return cls(
            snapshot_id=v['snapshotId'],
            sandbox_id=v['sandboxId'],
            created_at=time_of(v['createdAt']),
            memory=v['memory'],
            size=v['size'],
            stood=v['stood'],
            image=v['image'],
            runtime=v['runtime'],
            limits=Limits.from_json(v['limits']),
            name=v.get('name'),
            names=list(v.get('names') or []),
            owner=v.get('owner'),
            shared=v.get('shared') or False,
            expires_at=time_of(v['expiresAt']) if v.get('expiresAt') is not None else None,
            template=TemplateInfo.from_json(v['template']) if v.get('template') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'snapshotId': self.snapshot_id,
                'sandboxId': self.sandbox_id,
                'createdAt': self.created_at,
                'memory': self.memory,
                'size': self.size,
                'stood': self.stood,
                'image': self.image,
                'runtime': self.runtime,
                'limits': self.limits,
                'name': self.name,
                'names': self.names or None,
                'owner': self.owner,
                'shared': self.shared or None,
                'expiresAt': self.expires_at,
                'template': self.template,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Stats(_Record):
    """What a sandbox uses now, and what it may use. A value that the runtime does not know is 0, as are the CPU and memory of a sleeping sandbox."""

    sandbox_id: str
    status: Literal["creating", "running", "paused", "hibernated", "stopped", "error", "destroyed"]
    health: Literal["healthy", "unhealthy", "asleep"]
    runtime: str
    created_at: datetime
    #: Percent of one core, since the last reading.
    cpu: float
    #: MiB.
    memory: float
    #: MiB of written files.
    disk: float
    #: Processes and threads.
    pids: int
    #: Bytes since it was created, without previews.
    network_sent: int
    #: Bytes since it was created, without previews.
    network_received: int
    #: CPU seconds since it was created.
    cpu_seconds: float
    #: Cost since it was created, by the server's prices.
    cost: float
    #: Cores.
    cpu_limit: float
    #: MiB.
    memory_limit: int
    #: MiB.
    disk_limit: int
    owner: str | None = None

    def __init__(
        self,
        sandbox_id: str,
        status: Literal["creating", "running", "paused", "hibernated", "stopped", "error", "destroyed"],
        health: Literal["healthy", "unhealthy", "asleep"],
        runtime: str,
        created_at: datetime,
        cpu: float,
        memory: float,
        disk: float,
        pids: int,
        network_sent: int,
        network_received: int,
        cpu_seconds: float,
        cost: float,
        cpu_limit: float,
        memory_limit: int,
        disk_limit: int,
        owner: str | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.status = status
        self.health = health
        self.runtime = runtime
        self.created_at = created_at
        self.cpu = cpu
        self.memory = memory
        self.disk = disk
        self.pids = pids
        self.network_sent = network_sent
        self.network_received = network_received
        self.cpu_seconds = cpu_seconds
        self.cost = cost
        self.cpu_limit = cpu_limit
        self.memory_limit = memory_limit
        self.disk_limit = disk_limit
        self.owner = owner

    @classmethod
    def from_json(cls, v: Any) -> Stats:
        return cls(
            sandbox_id=v['sandboxId'],
            status=v['status'],
            health=v['health'],
            runtime=v['runtime'],
            created_at=time_of(v['createdAt']),
            cpu=v['cpu'],
            memory=v['memory'],
            disk=v['disk'],
            pids=v['pids'],
            network_sent=v['networkSent'],
            network_received=v['networkReceived'],
            cpu_seconds=v['cpuSeconds'],
            cost=v['cost'],
            cpu_limit=v['cpuLimit'],
            memory_limit=v['memoryLimit'],
            disk_limit=v['diskLimit'],
            owner=v.get('owner'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'sandboxId': self.sandbox_id,
                'status': self.status,
                'health': self.health,
                'runtime': self.runtime,
                'createdAt': self.created_at,
                'cpu': self.cpu,
                'memory': self.memory,
                'disk': self.disk,
                'pids': self.pids,
                'networkSent': self.network_sent,
                'networkReceived': self.network_received,
                'cpuSeconds': self.cpu_seconds,
                'cost': self.cost,
                'cpuLimit': self.cpu_limit,
                'memoryLimit': self.memory_limit,
                'diskLimit': self.disk_limit,
                'owner': self.owner,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class StatsHistory(_Record):
    """What a sandbox used over time."""

    #: Seconds between two samples. A longer gap means that the sandbox did not run, or the server did not.
    step: float
    #: Oldest first.
    samples: list[StatsSample]

    def __init__(
        self,
        step: float,
        samples: list[StatsSample],
    ) -> None:
        self.step = step
        self.samples = samples

    @classmethod
    def from_json(cls, v: Any) -> StatsHistory:
        return cls(
            step=v['step'],
            samples=[StatsSample.from_json(x) for x in v['samples'] or []],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'step': self.step,
                'samples': self.samples,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class StatsReport(_Record):
    """What sandboxes use at one moment."""

    time: datetime
    #: Whether it has all sandboxes, and replaces the reports before it; false for changes.
    full: bool
    #: Oldest first.
    sandboxes: list[Stats]
    #: Whether it has only sandboxes that are new or gone, or whose status or health changed. The others were not read, and can have changed. Such a report does not wait for the interval.
    partial: bool = False

    def __init__(
        self,
        time: datetime,
        full: bool,
        sandboxes: list[Stats],
        partial: bool = False,
    ) -> None:
        self.time = time
        self.full = full
        self.sandboxes = sandboxes
        self.partial = partial

    @classmethod
    def from_json(cls, v: Any) -> StatsReport:
        return cls(
            time=time_of(v['time']),
            full=v['full'],
            sandboxes=[Stats.from_json(x) for x in v['sandboxes'] or []],
            partial=v.get('partial') or False,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'time': self.time,
                'full': self.full,
                'sandboxes': self.sandboxes,
                'partial': self.partial or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class StatsSample(_Record):
    """What a sandbox used on average from a moment until the next sample. A value that the runtime does not know is 0."""

    time: datetime
    #: Percent of one core.
    cpu: float
    #: MiB.
    memory: float
    #: MiB of written files.
    disk: float
    #: Bytes per second to the network, without previews.
    send_rate: float
    #: Bytes per second from the network, without previews.
    receive_rate: float

    def __init__(
        self,
        time: datetime,
        cpu: float,
        memory: float,
        disk: float,
        send_rate: float,
        receive_rate: float,
    ) -> None:
        self.time = time
        self.cpu = cpu
        self.memory = memory
        self.disk = disk
        self.send_rate = send_rate
        self.receive_rate = receive_rate

    @classmethod
    def from_json(cls, v: Any) -> StatsSample:
        return cls(
            time=time_of(v['time']),
            cpu=v['cpu'],
            memory=v['memory'],
            disk=v['disk'],
            send_rate=v['sendRate'],
            receive_rate=v['receiveRate'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'time': self.time,
                'cpu': self.cpu,
                'memory': self.memory,
                'disk': self.disk,
                'sendRate': self.send_rate,
                'receiveRate': self.receive_rate,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class TemplateInfo(_Record):
    """What runs in the sandboxes of a template."""

    #: Command line of a background process that runs in every sandbox.
    start: str | None = None
    #: When start is ready; without it, once it has started.
    ready: WaitFor | None = None
    #: As in ProcessRequest, of the process of start.
    stop_signal: int | None = None
    #: As in ProcessRequest, of the process of start.
    health: HealthCheck | None = None
    #: Interpreters that wait, as LANGUAGE or LANGUAGE=MODULE,MODULE.
    warm: list[str] = field(default_factory=list)
    #: Labels that the sandboxes get in addition to their own.
    labels: dict[str, str] = field(default_factory=dict)
    #: Volumes of the sandboxes, by their names among the volumes of the owner who creates a sandbox: at most 16.
    volumes: list[VolumeMount] = field(default_factory=list)
    #: Sandboxes of the template at once, of all owners, awake or asleep; 0 is no limit.
    max_sandboxes: int | None = None

    def __init__(
        self,
        start: str | None = None,
        ready: WaitFor | None = None,
        stop_signal: int | None = None,
        health: HealthCheck | None = None,
        warm: list[str] | None = None,
        labels: dict[str, str] | None = None,
        volumes: list[VolumeMount] | None = None,
        max_sandboxes: int | None = None,
    ) -> None:
        self.start = start
        self.ready = ready
        self.stop_signal = stop_signal
        self.health = health
        self.warm = warm if warm is not None else []
        self.labels = labels if labels is not None else {}
        self.volumes = volumes if volumes is not None else []
        self.max_sandboxes = max_sandboxes

    @classmethod
    def from_json(cls, v: Any) -> TemplateInfo:
        return cls(
            start=v.get('start'),
            ready=WaitFor.from_json(v['ready']) if v.get('ready') is not None else None,
            stop_signal=v.get('stopSignal'),
            health=HealthCheck.from_json(v['health']) if v.get('health') is not None else None,
            warm=list(v.get('warm') or []),
            labels=v.get('labels') or {},
            volumes=[VolumeMount.from_json(x) for x in v.get('volumes') or []],
            max_sandboxes=v.get('maxSandboxes'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'start': self.start,
                'ready': self.ready,
                'stopSignal': self.stop_signal,
                'health': self.health,
                'warm': self.warm or None,
                'labels': self.labels or None,
                'volumes': self.volumes or None,
                'maxSandboxes': self.max_sandboxes,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class TerminalLink(_Record):
    """A link by which anyone can watch one terminal."""

    link_id: str
    sandbox_id: str
    process_id: str
    created_at: datetime
    expires_at: datetime

    def __init__(
        self,
        link_id: str,
        sandbox_id: str,
        process_id: str,
        created_at: datetime,
        expires_at: datetime,
    ) -> None:
        self.link_id = link_id
        self.sandbox_id = sandbox_id
        self.process_id = process_id
        self.created_at = created_at
        self.expires_at = expires_at

    @classmethod
    def from_json(cls, v: Any) -> TerminalLink:
        return cls(
            link_id=v['linkId'],
            sandbox_id=v['sandboxId'],
            process_id=v['processId'],
            created_at=time_of(v['createdAt']),
            expires_at=time_of(v['expiresAt']),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'linkId': self.link_id,
                'sandboxId': self.sandbox_id,
                'processId': self.process_id,
                'createdAt': self.created_at,
                'expiresAt': self.expires_at,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class TerminalSize(_Record):
    """The size of a terminal, in characters."""

    #: 1 to 1000.
    columns: int
    #: 1 to 1000.
    rows: int

    def __init__(
        self,
        columns: int,
        rows: int,
    ) -> None:
        self.columns = columns
        self.rows = rows

    @classmethod
    def from_json(cls, v: Any) -> TerminalSize:
        return cls(
            columns=v['columns'],
            rows=v['rows'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'columns': self.columns,
                'rows': self.rows,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class TimelineEntry(_Record):
    """One event in a sandbox."""

    #: Names the entry for good.
    id: int
    #: The position. An entry that is running moves to the end when it has ended.
    cursor: int
    #: When it began.
    time: datetime
    #: Seconds; 0 while it is running.
    duration: float
    kind: Literal["life", "command", "code", "file", "git", "network", "port", "snapshot", "share", "question"]
    #: The verb, as the audit log has it; or what happened: Created, Forked, Woken, Hibernated, Stopped, Paused, Resumed, MemoryLimit, Failed, Destroyed, ProcessEnded (whose time is that of the end), and Allowed, Denied and Skipped of the network.
    event: str
    #: ok, running, interrupted (the server ended meanwhile), failed (the program did), canceled, or the kind of the error.
    result: str
    #: A path, the head of a command or of code, an address, or why it happened.
    target: str | None = None
    error: str | None = None
    #: Exit code of a program that has ended.
    exit_code: int | None = None
    #: The limit that ended the program: memory or time.
    limit: str | None = None
    #: A snapshot that was made, or that the sandbox began as.
    snapshot_id: str | None = None
    #: The sandboxes that were made, or the one that this one was made from.
    sandbox_ids: list[str] = field(default_factory=list)
    process_id: str | None = None
    context_id: str | None = None
    #: How many events of the network before this one were left out because they came too fast.
    skipped: int | None = None
    #: The id of the token that it was done with; missing for what the server or a program did.
    token: str | None = None
    token_name: str | None = None
    #: The door: rest, mcp, conversation or the name of a compatible API.
    surface: str | None = None
    #: The id of the HTTP request, as in the audit log.
    request: str | None = None

    def __init__(
        self,
        id: int,
        cursor: int,
        time: datetime,
        duration: float,
        kind: Literal["life", "command", "code", "file", "git", "network", "port", "snapshot", "share", "question"],
        event: str,
        result: str,
        target: str | None = None,
        error: str | None = None,
        exit_code: int | None = None,
        limit: str | None = None,
        snapshot_id: str | None = None,
        sandbox_ids: list[str] | None = None,
        process_id: str | None = None,
        context_id: str | None = None,
        skipped: int | None = None,
        token: str | None = None,
        token_name: str | None = None,
        surface: str | None = None,
        request: str | None = None,
    ) -> None:
        self.id = id
        self.cursor = cursor
        self.time = time
        self.duration = duration
        self.kind = kind
        self.event = event
        self.result = result
        self.target = target
        self.error = error
        self.exit_code = exit_code
        self.limit = limit
        self.snapshot_id = snapshot_id
        self.sandbox_ids = sandbox_ids if sandbox_ids is not None else []
        self.process_id = process_id
        self.context_id = context_id
        self.skipped = skipped
        self.token = token
        self.token_name = token_name
        self.surface = surface
        self.request = request

    @classmethod
    def from_json(cls, v: Any) -> TimelineEntry:
        return cls(
            id=v['id'],
            cursor=v['cursor'],
            time=time_of(v['time']),
            duration=v['duration'],
            kind=v['kind'],
            event=v['event'],
            result=v['result'],
            target=v.get('target'),
            error=v.get('error'),
            exit_code=v.get('exitCode'),
            limit=v.get('limit'),
            snapshot_id=v.get('snapshotId'),
            sandbox_ids=list(v.get('sandboxIds') or []),
            process_id=v.get('processId'),
            context_id=v.get('contextId'),
            skipped=v.get('skipped'),
            token=v.get('token'),
            token_name=v.get('tokenName'),
            surface=v.get('surface'),
            request=v.get('request'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'id': self.id,
                'cursor': self.cursor,
                'time': self.time,
                'duration': self.duration,
                'kind': self.kind,
                'event': self.event,
                'result': self.result,
                'target': self.target,
                'error': self.error,
                'exitCode': self.exit_code,
                'limit': self.limit,
                'snapshotId': self.snapshot_id,
                'sandboxIds': self.sandbox_ids or None,
                'processId': self.process_id,
                'contextId': self.context_id,
                'skipped': self.skipped,
                'token': self.token,
                'tokenName': self.token_name,
                'surface': self.surface,
                'request': self.request,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class TimelinePage(_Record):
    """A part of a timeline."""

    entries: list[TimelineEntry]
    #: The cursor to continue after.
    next: int

    def __init__(
        self,
        entries: list[TimelineEntry],
        next: int,
    ) -> None:
        self.entries = entries
        self.next = next

    @classmethod
    def from_json(cls, v: Any) -> TimelinePage:
        return cls(
            entries=[TimelineEntry.from_json(x) for x in v['entries'] or []],
            next=v['next'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'entries': self.entries,
                'next': self.next,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class TokenInfo(_Record):
    """The record of a token, without its secret."""

    token_id: str
    name: str
    scopes: list[Literal["read", "exec", "files", "ports", "admin"]]
    limits: TokenLimits
    created_at: datetime
    #: The most that its sandboxes may reach; without it, the server's default.
    network: Network | None = None
    #: The registries that its images come from and go to, among those of the server; without it, all of these.
    registries: list[str] = field(default_factory=list)
    expires_at: datetime | None = None
    #: Time of the last use, accurate to ten minutes.
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None

    def __init__(
        self,
        token_id: str,
        name: str,
        scopes: list[Literal["read", "exec", "files", "ports", "admin"]],
        limits: TokenLimits,
        created_at: datetime,
        network: Network | None = None,
        registries: list[str] | None = None,
        expires_at: datetime | None = None,
        last_used_at: datetime | None = None,
        revoked_at: datetime | None = None,
    ) -> None:
        self.token_id = token_id
        self.name = name
        self.scopes = scopes
        self.limits = limits
        self.created_at = created_at
        self.network = network
        self.registries = registries if registries is not None else []
        self.expires_at = expires_at
        self.last_used_at = last_used_at
        self.revoked_at = revoked_at

    @classmethod
    def from_json(cls, v: Any) -> TokenInfo:
        return cls(
            token_id=v['tokenId'],
            name=v['name'],
            scopes=list(v['scopes'] or []),
            limits=TokenLimits.from_json(v['limits']),
            created_at=time_of(v['createdAt']),
            network=Network.from_json(v['network']) if v.get('network') is not None else None,
            registries=list(v.get('registries') or []),
            expires_at=time_of(v['expiresAt']) if v.get('expiresAt') is not None else None,
            last_used_at=time_of(v['lastUsedAt']) if v.get('lastUsedAt') is not None else None,
            revoked_at=time_of(v['revokedAt']) if v.get('revokedAt') is not None else None,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'tokenId': self.token_id,
                'name': self.name,
                'scopes': self.scopes,
                'limits': self.limits,
                'createdAt': self.created_at,
                'network': self.network,
                'registries': self.registries or None,
                'expiresAt': self.expires_at,
                'lastUsedAt': self.last_used_at,
                'revokedAt': self.revoked_at,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class TokenLimits(_Record):
    """What one token can use. 0 is the server's default, -1 means no limit."""

    #: HTTP requests; default 100.
    requests_per_minute: int | None = None
    #: Calls about sandboxes; default 1000.
    operations_per_hour: int | None = None
    #: Most sandboxes at once; default 10.
    sandboxes: int | None = None

    def __init__(
        self,
        requests_per_minute: int | None = None,
        operations_per_hour: int | None = None,
        sandboxes: int | None = None,
    ) -> None:
        self.requests_per_minute = requests_per_minute
        self.operations_per_hour = operations_per_hour
        self.sandboxes = sandboxes

    @classmethod
    def from_json(cls, v: Any) -> TokenLimits:
        return cls(
            requests_per_minute=v.get('requestsPerMinute'),
            operations_per_hour=v.get('operationsPerHour'),
            sandboxes=v.get('sandboxes'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'requestsPerMinute': self.requests_per_minute,
                'operationsPerHour': self.operations_per_hour,
                'sandboxes': self.sandboxes,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Traffic(_Record):
    """Counts since the sandbox was made."""

    #: Connections now.
    open: int
    #: Connections.
    allowed: int
    #: Connections, requests and lookups.
    denied: int
    #: Lookups of names.
    lookups: int
    #: HTTP requests, where the server sees them.
    requests: int
    #: Bytes, by the sandbox.
    sent: int
    #: Bytes.
    received: int

    def __init__(
        self,
        open: int,
        allowed: int,
        denied: int,
        lookups: int,
        requests: int,
        sent: int,
        received: int,
    ) -> None:
        self.open = open
        self.allowed = allowed
        self.denied = denied
        self.lookups = lookups
        self.requests = requests
        self.sent = sent
        self.received = received

    @classmethod
    def from_json(cls, v: Any) -> Traffic:
        return cls(
            open=v['open'],
            allowed=v['allowed'],
            denied=v['denied'],
            lookups=v['lookups'],
            requests=v['requests'],
            sent=v['sent'],
            received=v['received'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'open': self.open,
                'allowed': self.allowed,
                'denied': self.denied,
                'lookups': self.lookups,
                'requests': self.requests,
                'sent': self.sent,
                'received': self.received,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Usage(_Record):
    """What a sandbox has used since it was made, or a sum over several sandboxes. A value that the runtime does not know is 0."""

    cpu_seconds: float
    #: GiB of memory times seconds.
    memory_gb_seconds: float
    #: MiB, of one sandbox.
    memory_peak: float
    #: MiB of written files, now; 0 in a history.
    disk: float
    #: Bytes that went from the sandbox to the world and to linked sandboxes, without previews.
    network_sent: int
    #: Bytes that came to the sandbox, likewise.
    network_received: int
    #: Commands, runs of code and processes begun.
    executions: int
    #: Seconds that it ran.
    wall_time: float
    #: Cost by the prices that the server was given.
    cost: float
    sandbox_id: str | None = None
    owner: str | None = None
    status: Literal["creating", "running", "paused", "hibernated", "stopped", "error", "destroyed"] | None = None
    #: In a history by day: the day in UTC.
    day: str | None = None
    #: Of the sandbox, or in a history by image.
    image: str | None = None

    def __init__(
        self,
        cpu_seconds: float,
        memory_gb_seconds: float,
        memory_peak: float,
        disk: float,
        network_sent: int,
        network_received: int,
        executions: int,
        wall_time: float,
        cost: float,
        sandbox_id: str | None = None,
        owner: str | None = None,
        status: Literal["creating", "running", "paused", "hibernated", "stopped", "error", "destroyed"] | None = None,
        day: str | None = None,
        image: str | None = None,
    ) -> None:
        self.cpu_seconds = cpu_seconds
        self.memory_gb_seconds = memory_gb_seconds
        self.memory_peak = memory_peak
        self.disk = disk
        self.network_sent = network_sent
        self.network_received = network_received
        self.executions = executions
        self.wall_time = wall_time
        self.cost = cost
        self.sandbox_id = sandbox_id
        self.owner = owner
        self.status = status
        self.day = day
        self.image = image

    @classmethod
    def from_json(cls, v: Any) -> Usage:
        return cls(
            cpu_seconds=v['cpuSeconds'],
            memory_gb_seconds=v['memoryGBSeconds'],
            memory_peak=v['memoryPeak'],
            disk=v['disk'],
            network_sent=v['networkSent'],
            network_received=v['networkReceived'],
            executions=v['executions'],
            wall_time=v['wallTime'],
            cost=v['cost'],
            sandbox_id=v.get('sandboxId'),
            owner=v.get('owner'),
            status=v.get('status'),
            day=v.get('day'),
            image=v.get('image'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'cpuSeconds': self.cpu_seconds,
                'memoryGBSeconds': self.memory_gb_seconds,
                'memoryPeak': self.memory_peak,
                'disk': self.disk,
                'networkSent': self.network_sent,
                'networkReceived': self.network_received,
                'executions': self.executions,
                'wallTime': self.wall_time,
                'cost': self.cost,
                'sandboxId': self.sandbox_id,
                'owner': self.owner,
                'status': self.status,
                'day': self.day,
                'image': self.image,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class UsageReport(_Record):
    """The version of a server."""

    sandboxes: list[Usage]
    #: Sums over all that an owner ever had, also what was destroyed.
    owners: list[Usage]

    def __init__(
        self,
        sandboxes: list[Usage],
        owners: list[Usage],
    ) -> None:
        self.sandboxes = sandboxes
        self.owners = owners

    @classmethod
    def from_json(cls, v: Any) -> UsageReport:
        return cls(
            sandboxes=[Usage.from_json(x) for x in v['sandboxes'] or []],
            owners=[Usage.from_json(x) for x in v['owners'] or []],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'sandboxes': self.sandboxes,
                'owners': self.owners,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class Version(_Record):
    """The version of a server."""

    version: str
    commit: str

    def __init__(
        self,
        version: str,
        commit: str,
    ) -> None:
        self.version = version
        self.commit = commit

    @classmethod
    def from_json(cls, v: Any) -> Version:
        return cls(
            version=v['version'],
            commit=v['commit'],
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'version': self.version,
                'commit': self.commit,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class VolumeBucket(_Record):
    """The bucket of a volume, on an S3-compatible service. Only the server uses it."""

    #: s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION
    url: str
    #: The id of the access key.
    key_id: str | None = None
    #: The name of the secret that has the access key.
    key_secret: str | None = None

    def __init__(
        self,
        url: str,
        key_id: str | None = None,
        key_secret: str | None = None,
    ) -> None:
        self.url = url
        self.key_id = key_id
        self.key_secret = key_secret

    @classmethod
    def from_json(cls, v: Any) -> VolumeBucket:
        return cls(
            url=v['url'],
            key_id=v.get('keyId'),
            key_secret=v.get('keySecret'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'url': self.url,
                'keyId': self.key_id,
                'keySecret': self.key_secret,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class VolumeInfo(_Record):
    """The record of a volume."""

    name: str
    #: MiB that it can hold.
    quota: int
    #: Bytes of its files, and at least 512 more for each entry.
    size: int
    #: Files, folders and links.
    entries: int
    #: Grows by one whenever the content changes.
    version: int
    created_at: datetime
    #: When the content last changed.
    saved_at: datetime
    #: The sandboxes that have it.
    uses: list[VolumeUse]
    #: Why the last save did not work.
    problem: str | None = None
    bucket: VolumeBucket | None = None
    #: It has changes that are not in its bucket yet.
    unsynced: bool = False
    #: Why the last exchange with the bucket did not work.
    bucket_problem: str | None = None

    def __init__(
        self,
        name: str,
        quota: int,
        size: int,
        entries: int,
        version: int,
        created_at: datetime,
        saved_at: datetime,
        uses: list[VolumeUse],
        problem: str | None = None,
        bucket: VolumeBucket | None = None,
        unsynced: bool = False,
        bucket_problem: str | None = None,
    ) -> None:
        self.name = name
        self.quota = quota
        self.size = size
        self.entries = entries
        self.version = version
        self.created_at = created_at
        self.saved_at = saved_at
        self.uses = uses
        self.problem = problem
        self.bucket = bucket
        self.unsynced = unsynced
        self.bucket_problem = bucket_problem

    @classmethod
    def from_json(cls, v: Any) -> VolumeInfo:
        return cls(
            name=v['name'],
            quota=v['quota'],
            size=v['size'],
            entries=v['entries'],
            version=v['version'],
            created_at=time_of(v['createdAt']),
            saved_at=time_of(v['savedAt']),
            uses=[VolumeUse.from_json(x) for x in v['uses'] or []],
            problem=v.get('problem'),
            bucket=VolumeBucket.from_json(v['bucket']) if v.get('bucket') is not None else None,
            unsynced=v.get('unsynced') or False,
            bucket_problem=v.get('bucketProblem'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'name': self.name,
                'quota': self.quota,
                'size': self.size,
                'entries': self.entries,
                'version': self.version,
                'createdAt': self.created_at,
                'savedAt': self.saved_at,
                'uses': self.uses,
                'problem': self.problem,
                'bucket': self.bucket,
                'unsynced': self.unsynced or None,
                'bucketProblem': self.bucket_problem,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class VolumeMount(_Record):
    """Where a sandbox has a volume."""

    #: The name of a volume.
    name: str
    #: An absolute path that the user of the sandbox can create, such as one below /workspace. What is there must be empty.
    path: str
    #: What programs write there is not saved.
    read_only: bool = False

    def __init__(
        self,
        name: str,
        path: str,
        read_only: bool = False,
    ) -> None:
        self.name = name
        self.path = path
        self.read_only = read_only

    @classmethod
    def from_json(cls, v: Any) -> VolumeMount:
        return cls(
            name=v['name'],
            path=v['path'],
            read_only=v.get('readOnly') or False,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'name': self.name,
                'path': self.path,
                'readOnly': self.read_only or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class VolumeUse(_Record):
    """A sandbox that has a volume."""

    sandbox_id: str
    path: str
    read_only: bool = False

    def __init__(
        self,
        sandbox_id: str,
        path: str,
        read_only: bool = False,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.path = path
        self.read_only = read_only

    @classmethod
    def from_json(cls, v: Any) -> VolumeUse:
        return cls(
            sandbox_id=v['sandboxId'],
            path=v['path'],
            read_only=v.get('readOnly') or False,
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'sandboxId': self.sandbox_id,
                'path': self.path,
                'readOnly': self.read_only or None,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class WaitFor(_Record):
    """Says what to wait for: a port, a line of output, the health of the process or, without any of them, its end."""

    #: Wait until a connection to this port on the sandbox's loopback succeeds. With path, which begins with a slash, an HTTP GET of it must be answered with status or, without one, with any from 200 to 399.
    port: int | None = None
    path: str | None = None
    status: int | None = None
    #: Wait until one line of the output has this text or pattern (RE2), of the bytes from cursor on. A line that has not ended counts for text at once, and for pattern when nothing has followed for a moment.
    text: str | None = None
    pattern: str | None = None
    cursor: int | None = None
    #: Wait until the health check of the process has succeeded.
    healthy: bool = False
    #: Seconds; default 30, at most the server's maximum.
    timeout: float | None = None

    def __init__(
        self,
        port: int | None = None,
        path: str | None = None,
        status: int | None = None,
        text: str | None = None,
        pattern: str | None = None,
        cursor: int | None = None,
        healthy: bool = False,
        timeout: float | None = None,
    ) -> None:
        self.port = port
        self.path = path
        self.status = status
        self.text = text
        self.pattern = pattern
        self.cursor = cursor
        self.healthy = healthy
        self.timeout = timeout

    @classmethod
    def from_json(cls, v: Any) -> WaitFor:
        return cls(
            port=v.get('port'),
            path=v.get('path'),
            status=v.get('status'),
            text=v.get('text'),
            pattern=v.get('pattern'),
            cursor=v.get('cursor'),
            healthy=v.get('healthy') or False,
            timeout=v.get('timeout'),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'port': self.port,
                'path': self.path,
                'status': self.status,
                'text': self.text,
                'pattern': self.pattern,
                'cursor': self.cursor,
                'healthy': self.healthy or None,
                'timeout': self.timeout,
            }
        )
        return made


@dataclass(init=False, repr=False, eq=False)
class WaitResult(_Record):
    """Says how waiting ended."""

    process: ProcessInfo
    #: The event happened before the time was over.
    met: bool
    timed_out: bool
    #: The line that had the text or pattern, at most 1 KiB of it.
    match: str | None = None
    #: Where a next wait for output can continue: after the text or the matching line; without a match, after all complete lines.
    cursor: int | None = None
    #: Rules that would have allowed what the network of the sandbox denied since the process started: at most 10, the newest last.
    denied: list[str] = field(default_factory=list)

    def __init__(
        self,
        process: ProcessInfo,
        met: bool,
        timed_out: bool,
        match: str | None = None,
        cursor: int | None = None,
        denied: list[str] | None = None,
    ) -> None:
        self.process = process
        self.met = met
        self.timed_out = timed_out
        self.match = match
        self.cursor = cursor
        self.denied = denied if denied is not None else []

    @classmethod
    def from_json(cls, v: Any) -> WaitResult:
        return cls(
            process=ProcessInfo.from_json(v['process']),
            met=v['met'],
            timed_out=v['timedOut'],
            match=v.get('match'),
            cursor=v.get('cursor'),
            denied=list(v.get('denied') or []),
        )

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = json_of(
            {
                'process': self.process,
                'met': self.met,
                'timedOut': self.timed_out,
                'match': self.match,
                'cursor': self.cursor,
                'denied': self.denied or None,
            }
        )
        return made


__all__ = [
    'AgentEvent',
    'AgentUsage',
    'AnswerOutput',
    'AuditFinding',
    'AuditVerification',
    'BackupInfo',
    'Brokering',
    'BuildEvent',
    'BuildInfo',
    'BuildOutput',
    'ConnectionInfo',
    'ConnectionLog',
    'Consumption',
    'ContextInfo',
    'Destruction',
    'Edit',
    'Environment',
    'Examination',
    'ExaminedPart',
    'ExposedPort',
    'FileChange',
    'FileEvent',
    'FileInfo',
    'Finding',
    'GitChange',
    'GitRepository',
    'GitStatus',
    'Grant',
    'HeaderRule',
    'HealthCheck',
    'ImageConfig',
    'ImageInfo',
    'InstanceType',
    'Language',
    'Limits',
    'Match',
    'MintedToken',
    'ModelUsage',
    'Network',
    'NetworkLimits',
    'NetworkProxy',
    'NetworkState',
    'Node',
    'NodeList',
    'NodeRoom',
    'NodeSandbox',
    'Point',
    'PortEvent',
    'PortLink',
    'ProcessHealth',
    'ProcessInfo',
    'Program',
    'Pruned',
    'RemovedNode',
    'Repair',
    'Resources',
    'SandboxInfo',
    'ScreenAction',
    'ScreenInfo',
    'SecretInfo',
    'SharedTerminal',
    'SnapshotDiff',
    'SnapshotInfo',
    'Stats',
    'StatsHistory',
    'StatsReport',
    'StatsSample',
    'TemplateInfo',
    'TerminalLink',
    'TerminalSize',
    'TimelineEntry',
    'TimelinePage',
    'TokenInfo',
    'TokenLimits',
    'Traffic',
    'Usage',
    'UsageReport',
    'Version',
    'VolumeBucket',
    'VolumeInfo',
    'VolumeMount',
    'VolumeUse',
    'WaitFor',
    'WaitResult',
]
