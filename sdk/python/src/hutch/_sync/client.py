# Written by tools/unasync.py from src/hutch/_async: change that, and run it.
"""A server."""

from __future__ import annotations

import os
import secrets as _random
from collections.abc import Iterable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from .._errors import InvalidError
from .._models import (
    AuditVerification,
    BackupInfo,
    Brokering,
    BuildEvent,
    BuildInfo,
    BuildOutput,
    Destruction,
    Examination,
    HealthCheck,
    ImageInfo,
    InstanceType,
    Limits,
    MintedToken,
    Network,
    Node,
    NodeList,
    RemovedNode,
    SandboxInfo,
    SecretInfo,
    SnapshotDiff,
    SnapshotInfo,
    StatsReport,
    TokenInfo,
    TokenLimits,
    Usage,
    UsageReport,
    Version,
    VolumeBucket,
    VolumeInfo,
    VolumeMount,
    WaitFor,
)
from .._results import AgentResult, AgentTries, Answer
from .._wire import at, body_of, check_id, file_of, milliseconds, query_of
from .base import Env
from .sandbox import Sandbox, OnIdle
from .stream import (
    AgentStream,
    AnswerStream,
    BuildLogStream,
    BuildStream,
    Source,
    StatsWatch,
    TriesStream,
    agent_request,
    build_request,
)
from .transport import Request, Transport

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Self

PullPolicy = Literal["missing", "always", "never"]
Scope = Literal["read", "exec", "files", "ports", "admin"]


class Hutch:
    """A client of one server. It connects with its first call.

    The URL and the token are those in the environment, `HUTCH_URL` and `HUTCH_TOKEN`, unless they are given.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, http_client: httpx.Client | None = None) -> None:
        for name, value in (("url", url), ("token", token)):
            if value == "":  # a token of the environment can have more rights than the missing one
                raise InvalidError(
                    f"{name} is an empty text: give the {name} of the server, or leave {name}= out to use HUTCH_{name.upper()} of the environment"
                )
        url = os.environ.get("HUTCH_URL") if url is None else url
        token = os.environ.get("HUTCH_TOKEN") if token is None else token
        if not url or not token:
            missing = " and ".join(n for n, v in (("HUTCH_URL", url), ("HUTCH_TOKEN", token)) if not v)
            verb = "are" if not url and not token else "is"
            raise InvalidError(f"{missing} {verb} not set: `hutch serve` prints the URL and the token; set them, or give url= and token=")
        self._transport = Transport(url, token, http_client)

    def close(self) -> None:
        """Closes the connections. Sandboxes stay."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, path: str, body: Any = None, *, patience: float | None = 60.0) -> Any:
        return self._transport.call(Request(method, path, body, patience=patience))

    # Sandboxes.

    def create(
        self,
        sandbox_id: str | None = None,
        *,
        image: str | None = None,
        pull: PullPolicy | None = None,
        runtime: str | None = None,
        instance_type: str | None = None,
        user: str | None = None,
        snapshot: str | None = None,
        template: str | None = None,
        files_only: bool = False,
        env: Env | None = None,
        secrets: Sequence[str] | None = None,
        volumes: Sequence[VolumeMount] | None = None,
        network: Network | None = None,
        limits: Limits | None = None,
        keep_alive: bool | None = None,
        sleep_after: float | None = None,
        on_idle: OnIdle | None = None,
        timeout: float | None = None,
        labels: Mapping[str, str] | None = None,
        node_selector: Mapping[str, str] | None = None,
        tolerations: Mapping[str, str] | None = None,
        normalize_id: bool = False,
    ) -> Sandbox:
        """Creates a sandbox. With the id of an existing sandbox, returns that sandbox unchanged, and ignores the other arguments.

        `timeout` is the lifetime in seconds, after which the sandbox is destroyed. `on_idle` happens after `sleep_after` seconds without use.
        In a fleet, `node_selector` are labels that its node must have, and `tolerations` are taints that its node can have.
        """
        body = body_of(
            sandboxId=sandbox_id,
            normalizeId=normalize_id or None,
            image=image,
            pull=pull,
            runtime=runtime,
            instanceType=instance_type,
            user=user,
            snapshot=snapshot,
            template=template,
            filesOnly=files_only or None,
            env=env,
            secrets=secrets,
            volumes=volumes,
            network=network,
            limits=limits,
            keepAlive=keep_alive,
            sleepAfter=sleep_after,
            onIdle=on_idle,
            timeout=timeout,
            labels=labels,
            nodeSelector=node_selector,
            tolerations=tolerations,
        )
        key = {"Idempotency-Key": _random.token_hex(16)}  # so that it can be sent again
        info = SandboxInfo.from_json(self._transport.call(Request("POST", "/v1/sandboxes", body, headers=key, patience=None)))
        return Sandbox(self._transport, info.sandbox_id, info)

    def get(self, sandbox_id: str) -> Sandbox:
        """Returns a handle for a sandbox that exists. A missing sandbox is a NotFoundError."""
        sandbox = self.sandbox(sandbox_id)
        sandbox.info()
        return sandbox

    def sandbox(self, sandbox_id: str) -> Sandbox:
        """A handle for an id, without a call."""
        return Sandbox(self._transport, check_id("sandboxId", sandbox_id))

    def list_sandboxes(
        self,
        *,
        status: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        brief: bool = False,
    ) -> list[SandboxInfo]:
        """The records of your sandboxes, oldest first. This wakes no sandbox."""
        query = query_of(
            status=status,
            owner=owner,
            label=[f"{k}={v}" for k, v in (labels or {}).items()],
            createdAfter=created_after,
            createdBefore=created_before,
            brief=brief,
        )
        return [SandboxInfo.from_json(v) for v in self._call("GET", "/v1/sandboxes" + query)]

    def destroy(self, sandbox_id: str, *, force: bool = True) -> Destruction:
        """Destroys a sandbox. It is not an error if the sandbox does not exist: that gives a receipt, too."""
        return self.sandbox(sandbox_id).destroy(force=force)

    def list_instance_types(self) -> list[InstanceType]:
        """The sizes that `create(instance_type=...)` can name."""
        return [InstanceType.from_json(v) for v in self._call("GET", "/v1/instance-types")]

    # Questions.

    def ask(
        self,
        question: str = "",
        *,
        code: str | None = None,
        language: str | None = None,
        files: Mapping[str, str | bytes] | None = None,
        timeout: float | None = None,
        conversation_id: str | None = None,
        agent: str | None = None,
        command: str | None = None,
        instructions: str | None = None,
        max_tokens: int | None = None,
        repairs: int | None = None,
        no_cache: bool = False,
        measure: bool = False,
        network: Network | None = None,
    ) -> Answer:
        """Answers a question with a program: a model writes it, and a sandbox runs it. With `code`, no model is asked.

        A program that fails is an answer too. `timeout` limits the program, in seconds; default 30. `files` are put into its folder.
        """
        stream = self.ask_stream(
            question,
            code=code,
            language=language,
            files=files,
            timeout=timeout,
            conversation_id=conversation_id,
            agent=agent,
            command=command,
            instructions=instructions,
            max_tokens=max_tokens,
            repairs=repairs,
            no_cache=no_cache,
            measure=measure,
            network=network,
        )
        with stream:
            return stream.wait()

    def ask_stream(
        self,
        question: str = "",
        *,
        code: str | None = None,
        language: str | None = None,
        files: Mapping[str, str | bytes] | None = None,
        timeout: float | None = None,
        conversation_id: str | None = None,
        agent: str | None = None,
        command: str | None = None,
        instructions: str | None = None,
        max_tokens: int | None = None,
        repairs: int | None = None,
        no_cache: bool = False,
        measure: bool = False,
        network: Network | None = None,
    ) -> AnswerStream:
        """Like `ask`, with each step as it happens: the model's words, the program, its output, repairs."""
        body = body_of(
            question=question,
            code=code,
            language=language,
            files=[file_of(path, content) for path, content in files.items()] if files else None,
            timeout=milliseconds("timeout", timeout),
            conversationId=conversation_id,
            agent=agent,
            command=command,
            instructions=instructions,
            maxTokens=max_tokens,
            repairs=repairs,
            noCache=no_cache or None,
            measure=measure or None,
            network=network,
        )
        return AnswerStream(self._transport, Request("POST", "/execute", body))

    # Coding agents.

    def run_agent(
        self,
        repository: Source,
        prompt: str,
        *,
        agent: str | None = None,
        definition: str | None = None,
        branch: str | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        image: str | None = None,
        runtime: str | None = None,
        env: Env | None = None,
        network: Network | None = None,
        limits: Limits | None = None,
        timeout: float | None = None,
        keep: float | None = None,
        detach: bool = False,
    ) -> AgentResult:
        """Lets a coding agent work on a repository, in a new sandbox, and waits for it. The sandbox is the session, and stays.

        `repository` is a URL, or an archive with the files: tar, plain or compressed with gzip, or zip. An agent that fails has a result
        too. `timeout` ends the agent, in seconds; default an hour. `keep` is how long the session exists; default a week. `definition`
        describes an agent that the server does not know, in YAML.
        """
        stream = self.run_agent_stream(
            repository,
            prompt,
            agent=agent,
            definition=definition,
            branch=branch,
            depth=depth,
            username=username,
            password=password,
            image=image,
            runtime=runtime,
            env=env,
            network=network,
            limits=limits,
            timeout=timeout,
            keep=keep,
            detach=detach,
        )
        with stream:
            return stream.wait()

    def run_agent_stream(
        self,
        repository: Source,
        prompt: str,
        *,
        agent: str | None = None,
        definition: str | None = None,
        branch: str | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        image: str | None = None,
        runtime: str | None = None,
        env: Env | None = None,
        network: Network | None = None,
        limits: Limits | None = None,
        timeout: float | None = None,
        keep: float | None = None,
        detach: bool = False,
    ) -> AgentStream:
        """Like `run_agent`, as a stream of events. The agent continues when the stream is left: see `follow_agent` and `stop_agent`."""
        clone = body_of(branch=branch, depth=depth, username=username, password=password)
        body = body_of(
            prompt=prompt,
            agent=agent,
            definition=definition,
            image=image,
            runtime=runtime,
            env=env,
            network=network,
            limits=limits,
            timeout=timeout,
            keep=keep,
            detach=detach or None,
        )
        return AgentStream(self._transport, agent_request("/agents", repository, clone, body))

    def try_agent(
        self,
        repository: Source,
        prompt: str,
        tries: int,
        *,
        agent: str | None = None,
        definition: str | None = None,
        branch: str | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        image: str | None = None,
        runtime: str | None = None,
        env: Env | None = None,
        network: Network | None = None,
        limits: Limits | None = None,
        timeout: float | None = None,
        keep: float | None = None,
        detach: bool = False,
    ) -> AgentTries:
        """Lets 1 to 16 agents do the same at once, each in a copy of one sandbox, and waits for all; see `run_agent`."""
        stream = self.try_agent_stream(
            repository,
            prompt,
            tries,
            agent=agent,
            definition=definition,
            branch=branch,
            depth=depth,
            username=username,
            password=password,
            image=image,
            runtime=runtime,
            env=env,
            network=network,
            limits=limits,
            timeout=timeout,
            keep=keep,
            detach=detach,
        )
        with stream:
            return stream.wait()

    def try_agent_stream(
        self,
        repository: Source,
        prompt: str,
        tries: int,
        *,
        agent: str | None = None,
        definition: str | None = None,
        branch: str | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        image: str | None = None,
        runtime: str | None = None,
        env: Env | None = None,
        network: Network | None = None,
        limits: Limits | None = None,
        timeout: float | None = None,
        keep: float | None = None,
        detach: bool = False,
    ) -> TriesStream:
        """Like `try_agent`, as a stream of events. The agents continue when the stream is left: see `follow_tries`."""
        clone = body_of(branch=branch, depth=depth, username=username, password=password)
        body = body_of(
            prompt=prompt,
            tries=tries,
            agent=agent,
            definition=definition,
            image=image,
            runtime=runtime,
            env=env,
            network=network,
            limits=limits,
            timeout=timeout,
            keep=keep,
            detach=detach or None,
        )
        return TriesStream(self._transport, agent_request("/agents/tries", repository, clone, body))

    def follow_tries(self, tries: str, *, definition: str | None = None) -> AgentTries:
        """Waits for several tries, or returns the results of tries that have ended."""
        with self.follow_tries_stream(tries, definition=definition) as stream:
            return stream.wait()

    def follow_tries_stream(self, tries: str, *, definition: str | None = None) -> TriesStream:
        """The events of several tries, from the beginning of the prompt."""
        return TriesStream(self._transport, Request("GET", at("/agents/{tries}/tries", tries=tries) + query_of(definition=definition)))

    def prompt_agent(
        self, session: str, prompt: str, *, definition: str | None = None, timeout: float | None = None, detach: bool = False
    ) -> AgentResult:
        """Gives the agent of a session its next prompt, and waits for it. The difference is everything since the session began."""
        with self.prompt_agent_stream(session, prompt, definition=definition, timeout=timeout, detach=detach) as stream:
            return stream.wait()

    def prompt_agent_stream(
        self, session: str, prompt: str, *, definition: str | None = None, timeout: float | None = None, detach: bool = False
    ) -> AgentStream:
        """Like `prompt_agent`, as a stream of events."""
        body = body_of(prompt=prompt, definition=definition, timeout=timeout, detach=detach or None)
        return AgentStream(self._transport, Request("POST", at("/agents/{session}", session=session), body))

    def follow_agent(self, session: str, *, definition: str | None = None) -> AgentResult:
        """Waits for the last prompt of a session, or returns its result if it has ended."""
        with self.follow_agent_stream(session, definition=definition) as stream:
            return stream.wait()

    def follow_agent_stream(self, session: str, *, definition: str | None = None) -> AgentStream:
        """The events of the last prompt of a session, from its beginning."""
        return AgentStream(self._transport, Request("GET", at("/agents/{session}", session=session) + query_of(definition=definition)))

    def stop_agent(self, session: str) -> None:
        """Ends the agent of a session, and keeps the session."""
        self._call("POST", at("/agents/{session}/stop", session=session))

    # Snapshots and templates.

    def list_snapshots(self) -> list[SnapshotInfo]:
        """The snapshots and templates, oldest first."""
        return [SnapshotInfo.from_json(v) for v in self._call("GET", "/v1/snapshots")]

    def commit_snapshot(self, snapshot: str, name: str) -> ImageInfo:
        """Makes an image of the files of a snapshot or template, on top of the image that its sandbox was created from."""
        return ImageInfo.from_json(self._call("POST", at("/v1/snapshots/{snapshot}/image", snapshot=snapshot), {"name": name}, patience=600.0))

    def tag_snapshot(self, snapshot: str, name: str, *, replace: bool = False) -> SnapshotInfo:
        """Gives a snapshot or template another name. `replace` takes the name from the snapshot that has it, and deletes that snapshot if this was its
        only name."""
        return SnapshotInfo.from_json(self._call("POST", at("/v1/snapshots/{snapshot}/tag", snapshot=snapshot), {"name": name, "replace": replace}))

    def diff_snapshot(
        self,
        snapshot: str,
        to: str | None = None,
        *,
        sandbox: str | None = None,
        path: str | None = None,
        text: bool = False,
        wake: bool = False,
    ) -> SnapshotDiff:
        """Compares the files of a snapshot with those of another snapshot or of a sandbox now, by default the sandbox that the
        snapshot was made of. text adds the difference of the text of files. A sandbox that sleeps is woken only with wake."""
        query = query_of(to=to, sandboxId=sandbox, path=path, text=text, wake=wake)
        return SnapshotDiff.from_json(self._call("GET", at("/v1/snapshots/{snapshot}/diff", snapshot=snapshot) + query))

    def delete_snapshot(self, snapshot: str) -> None:
        """Deletes a snapshot or template, by its id or its only name. If it has several names, only the given name is removed."""
        self._call("DELETE", at("/v1/snapshots/{snapshot}", snapshot=snapshot))

    def create_template(
        self,
        name: str,
        *,
        start: str | None = None,
        ready: WaitFor | None = None,
        stop_signal: int | None = None,
        health: HealthCheck | None = None,
        warm: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        volumes: Sequence[VolumeMount] | None = None,
        max_sandboxes: int | None = None,
        replace: bool = False,
        from_sandbox: str | None = None,
        image: str | None = None,
        user: str | None = None,
        pull: PullPolicy | None = None,
        runtime: str | None = None,
        instance_type: str | None = None,
        limits: Limits | None = None,
        snapshot: str | None = None,
        env: Env | None = None,
        secrets: Sequence[str] | None = None,
        network: Network | None = None,
        entrypoint: bool = False,
        files_only: bool = False,
        ttl: float | None = None,
        shared: bool = False,
    ) -> SnapshotInfo:
        """Makes a template: a snapshot in which `start` runs and is `ready`. `create(template=name)` makes sandboxes from it."""
        body = body_of(
            name=name,
            start=start,
            ready=ready,
            stopSignal=stop_signal,
            health=health,
            warm=warm,
            labels=labels,
            volumes=volumes,
            maxSandboxes=max_sandboxes,
            replace=replace or None,
            image=image,
            user=user,
            pull=pull,
            runtime=runtime,
            instanceType=instance_type,
            limits=limits,
            snapshot=snapshot,
            env=env,
            secrets=secrets,
            network=network,
            entrypoint=entrypoint or None,
            filesOnly=files_only or None,
            ttl=ttl,
            shared=shared or None,
        )
        if from_sandbox is not None:
            body["from"] = from_sandbox
        return SnapshotInfo.from_json(self._call("POST", "/v1/templates", body, patience=None))

    # Volumes.

    def create_volume(self, name: str, *, quota: int | None = None, bucket: VolumeBucket | None = None) -> VolumeInfo:
        """Makes a volume: a folder that outlives sandboxes. It is empty, or has the files of a bucket. `quota` is in MiB."""
        return VolumeInfo.from_json(self._call("POST", "/v1/volumes", body_of(name=name, quota=quota, bucket=bucket), patience=None))

    def list_volumes(self) -> list[VolumeInfo]:
        return [VolumeInfo.from_json(v) for v in self._call("GET", "/v1/volumes")]

    def get_volume(self, name: str) -> VolumeInfo:
        return VolumeInfo.from_json(self._call("GET", at("/v1/volumes/{volume}", volume=name)))

    def delete_volume(self, name: str, *, force: bool = False) -> None:
        """Deletes a volume with its files. Fails while a sandbox uses the volume. `force` discards changes that are not in its bucket."""
        self._call("DELETE", at("/v1/volumes/{volume}", volume=name) + query_of(force=force))

    def sync_volume(self, name: str) -> VolumeInfo:
        """Exchanges changes with the bucket of a volume."""
        return VolumeInfo.from_json(self._call("POST", at("/v1/volumes/{volume}/sync", volume=name), patience=None))

    def read_volume(self, name: str, path: str | None = None) -> bytes:
        """A file or folder of a volume, as a tar archive."""
        request = Request("GET", at("/v1/volumes/{volume}/archive", volume=name) + query_of(path=path), patience=None)
        response = self._transport.send(request)
        return response.content

    def write_volume(self, name: str, archive: bytes | Iterable[bytes], path: str | None = None) -> VolumeInfo:
        """Puts the entries of a tar archive into a folder of a volume."""
        target = at("/v1/volumes/{volume}/archive", volume=name) + query_of(path=path)
        return VolumeInfo.from_json(self._transport.call(Request("PUT", target, content=archive, patience=None)))

    # Secrets.

    def set_secret(
        self, name: str, value: str, *, brokered: Brokering | None = None, labels: dict[str, str] | None = None, create: bool = False
    ) -> SecretInfo:
        """Sets a secret: only programs that request it receive its value, which is masked in all output. With `create`, an existing
        secret is not replaced: the call fails with `ConflictError`."""
        body = {**body_of(brokered=brokered, labels=labels, create=create or None), "value": value}
        return SecretInfo.from_json(self._call("PUT", at("/v1/secrets/{name}", name=name), body))

    def list_secrets(self) -> list[SecretInfo]:
        """The names of the secrets. No call returns a value."""
        return [SecretInfo.from_json(v) for v in self._call("GET", "/v1/secrets")]

    def delete_secret(self, name: str) -> None:
        self._call("DELETE", at("/v1/secrets/{name}", name=name))

    # Backups.

    def list_backups(self) -> list[BackupInfo]:
        return [BackupInfo.from_json(v) for v in self._call("GET", "/v1/backups")]

    def delete_backup(self, backup_id: str) -> None:
        self._call("DELETE", at("/v1/backups/{backup}", backup=backup_id))

    # Images.

    def list_images(self) -> list[ImageInfo]:
        return [ImageInfo.from_json(v) for v in self._call("GET", "/v1/images")]

    def get_image(self, image: str) -> ImageInfo:
        return ImageInfo.from_json(self._call("GET", "/v1/images/inspect" + query_of(image=image)))

    def pull_image(
        self, image: str, *, pull: PullPolicy | None = None, shared: bool = False, username: str | None = None, password: str | None = None
    ) -> ImageInfo:
        """Pulls an image from its registry."""
        body = body_of(image=image, pull=pull, shared=shared or None, username=username, password=password)
        return ImageInfo.from_json(self._call("POST", "/v1/images/pull", body, patience=None))

    def build_image(
        self,
        name: str | None = None,
        *,
        context: bytes | Iterable[bytes] | None = None,
        file: str | None = None,
        dockerfile: str | None = None,
        args: Mapping[str, str] | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        no_cache: bool = False,
        pull: PullPolicy | None = None,
        secrets: Mapping[str, str] | None = None,
        network: Network | None = None,
        limits: Limits | None = None,
        runtime: str | None = None,
        timeout: float | None = None,
        detach: bool = False,
        on_progress: Callable[[BuildEvent], object] | None = None,
    ) -> ImageInfo:
        """Builds an image from a Dockerfile, which is a file in `context` or the text `dockerfile`. Each RUN is a command in a sandbox.

        `context` is a tar archive of the files that the Dockerfile copies, plain or compressed with gzip or zstd. `on_progress` is called
        with each step, its output and its end. `timeout` limits the whole build, in seconds; default an hour. With `detach`, the build
        continues when the connection ends, once all of `context` has arrived: `list_builds` has its record, and `follow_build` its output.
        """
        stream = self.build_image_stream(
            name,
            context=context,
            file=file,
            dockerfile=dockerfile,
            args=args,
            target=target,
            labels=labels,
            no_cache=no_cache,
            pull=pull,
            secrets=secrets,
            network=network,
            limits=limits,
            runtime=runtime,
            timeout=timeout,
            detach=detach,
        )
        with stream:
            for event in stream:
                if on_progress:
                    on_progress(event)
            return stream.result

    def build_image_stream(
        self,
        name: str | None = None,
        *,
        context: bytes | Iterable[bytes] | None = None,
        file: str | None = None,
        dockerfile: str | None = None,
        args: Mapping[str, str] | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        no_cache: bool = False,
        pull: PullPolicy | None = None,
        secrets: Mapping[str, str] | None = None,
        network: Network | None = None,
        limits: Limits | None = None,
        runtime: str | None = None,
        timeout: float | None = None,
        detach: bool = False,
    ) -> BuildStream:
        """Like `build_image`, as a stream of events: steps, their output and their end. Without `detach`, leaving the stream ends the build."""
        body = body_of(
            name=name,
            file=file,
            dockerfile=dockerfile,
            args=args,
            target=target,
            labels=labels,
            noCache=no_cache or None,
            pull=pull,
            secrets=secrets,
            network=network,
            limits=limits,
            runtime=runtime,
            timeout=timeout,
            detach=detach or None,
        )
        return BuildStream(self._transport, build_request(context, body), detach)

    def list_builds(self) -> list[BuildInfo]:
        """The builds that run, and the newest that have ended, oldest first."""
        return [BuildInfo.from_json(one) for one in self._call("GET", "/v1/builds")]

    def read_build(self, build_id: str) -> BuildOutput:
        """The record of a build and its output so far; of long output, the beginning and the end."""
        return BuildOutput.from_json(self._call("GET", at("/v1/builds/{build}/logs", build=build_id)))

    def follow_build(self, build_id: str) -> BuildLogStream:
        """The output of a build until it has ended. Leaving the stream does not end the build."""
        return BuildLogStream(self._transport, Request("GET", at("/v1/builds/{build}/logs", build=build_id)))

    def delete_build(self, build_id: str) -> None:
        """Ends a build that runs, and keeps its record; removes the record of a build that has ended."""
        self._call("DELETE", at("/v1/builds/{build}", build=build_id))

    def tag_image(self, image: str, name: str) -> ImageInfo:
        return ImageInfo.from_json(self._call("POST", "/v1/images/tag", {"image": image, "name": name}))

    def delete_image(self, image: str) -> None:
        self._call("DELETE", "/v1/images" + query_of(image=image))

    # The server.

    def version(self) -> Version:
        """The version of the server. Any valid token can read it."""
        return Version.from_json(self._call("GET", "/v1/version"))

    def examine(self) -> Examination:
        """The findings of `hutch doctor` on the machine of the server: each with its state and, if needed, a fix. Needs the scope admin."""
        return Examination.from_json(self._call("GET", "/v1/doctor", patience=300.0))

    def verify_audit(self, head: str | None = None) -> AuditVerification:
        """Whether the audit log is unchanged. The `head` of an earlier answer must still be in it. Needs the scope admin."""
        return AuditVerification.from_json(self._call("GET", "/v1/audit/verification" + query_of(head=head), patience=300.0))

    def list_nodes(self) -> NodeList:
        """The machines of the server. A server outside of a fleet lists itself. Needs the scope admin, as all calls about nodes do."""
        return NodeList.from_json(self._call("GET", "/v1/nodes"))

    def get_node(self, node: str) -> Node:
        """A node, with its sandboxes: those that cannot leave it while it is draining, then the oldest."""
        return Node.from_json(self._call("GET", at("/v1/nodes/{node}", node=node)))

    def cordon_node(self, node: str) -> Node:
        """Makes the server place no new sandboxes on a node."""
        return Node.from_json(self._call("POST", at("/v1/nodes/{node}/cordon", node=node)))

    def uncordon_node(self, node: str) -> Node:
        """Makes the server place new sandboxes on a node again, and ends a drain."""
        return Node.from_json(self._call("POST", at("/v1/nodes/{node}/uncordon", node=node)))

    def drain_node(self, node: str) -> Node:
        """Starts to hand over the sandboxes of a node to other nodes, and does not wait: `held` is how many are left, `stuck` how many cannot leave."""
        return Node.from_json(self._call("POST", at("/v1/nodes/{node}/drain", node=node)))

    def remove_node(self, node: str, *, force: bool = False) -> RemovedNode:
        """Removes a node, and frees the ids of its sandboxes. A live node with sandboxes, or the only node, needs `force`."""
        return RemovedNode.from_json(self._call("DELETE", at("/v1/nodes/{node}", node=node) + query_of(force=force or None)))

    def usage(self) -> UsageReport:
        """The usage of sandboxes so far."""
        return UsageReport.from_json(self._call("GET", "/v1/usage"))

    def usage_history(self, *, since: str | None = None, until: str | None = None, by: Sequence[str] = ()) -> list[Usage]:
        """Usage on past days, destroyed sandboxes included. The days are in UTC, such as "2026-11-28"; default the last 30.
        `by` names the groups that each get a sum: "day", "owner", "image"; default the day."""
        query = query_of(**{"from": since, "to": until, "by": ",".join(by) or None})
        return [Usage.from_json(u) for u in self._call("GET", "/v1/usage/history" + query)]

    def stats(self) -> StatsReport:
        """The present usage of sandboxes. It wakes no sandbox."""
        return StatsReport.from_json(self._call("GET", "/v1/stats"))

    def watch_stats(self, interval: float | None = None) -> StatsWatch:
        """Reports the usage of sandboxes: first of all sandboxes, then of those that changed.

        A sandbox that is new or gone, or has another status or health, is reported at once, in a report that is `partial`. `interval` is
        the shortest time between two reports that are not `partial`, in seconds; default 2.
        """
        return StatsWatch(self._transport, Request("GET", "/v1/stats" + query_of(interval=interval), patience=None))

    def create_token(
        self,
        name: str,
        *,
        scopes: Sequence[Scope] | None = None,
        limits: TokenLimits | None = None,
        network: Network | None = None,
        registries: Sequence[str] | None = None,
        lifetime: float | None = None,
    ) -> MintedToken:
        """Makes a token. Only this answer has its secret."""
        body = body_of(name=name, scopes=scopes, limits=limits, network=network, registries=registries, lifetime=lifetime)
        return MintedToken.from_json(self._call("POST", "/v1/tokens", body))

    def list_tokens(self) -> list[TokenInfo]:
        return [TokenInfo.from_json(v) for v in self._call("GET", "/v1/tokens")]

    def revoke_token(self, token: str) -> TokenInfo:
        """Revokes a token, and ends its calls."""
        return TokenInfo.from_json(self._call("DELETE", at("/v1/tokens/{token}", token=token)))


__all__ = ["Hutch", "PullPolicy", "Scope"]
