"""One sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from .._models import (
    BackupInfo,
    ConnectionLog,
    Destruction,
    ExposedPort,
    Grant,
    HeaderRule,
    ImageInfo,
    Network,
    NetworkLimits,
    NetworkProxy,
    NetworkState,
    PortLink,
    SandboxInfo,
    SnapshotInfo,
    StatsHistory,
    TimelinePage,
    VolumeInfo,
)
from .._wire import body_of, check_id, query_of
from .base import Env
from .commands import Commands
from .files import Files
from .processes import Processes
from .screen import AsyncScreen
from .stream import AsyncPortWatch, AsyncTimelineWatch
from .transport import Request, Transport

if TYPE_CHECKING:
    from typing_extensions import Self

OnIdle = Literal["hibernate", "stop", "destroy"]
NetworkMode = Literal["none", "allow-list", "open"]


class AsyncSandbox(Commands, Processes, Files):
    """A sandbox: an isolated computer with files, processes, code contexts and a network with rules.

    As a context manager it is destroyed at the end.
    """

    def __init__(self, transport: Transport, sandbox_id: str, record: SandboxInfo | None = None) -> None:
        super().__init__(transport, sandbox_id)
        self._record = record

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.destroy(force=True)

    async def info(self) -> SandboxInfo:
        """The present record of the sandbox. This does not wake it."""
        self._record = SandboxInfo.from_json(await self._call("GET", ""))
        return self._record

    async def destroy(self, *, force: bool = True) -> Destruction:
        """Destroys the sandbox with its content. Without `force`, the call fails while background processes run."""
        return Destruction.from_json(await self._call("DELETE", "", query=query_of(force=force), patience=300.0))

    async def update(
        self,
        *,
        keep_alive: bool | None = None,
        sleep_after: float | None = None,
        on_idle: OnIdle | None = None,
        timeout: float | None = None,
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> SandboxInfo:
        """Changes how long the sandbox stays, its labels and its variables. Omitted arguments change nothing."""
        body = body_of(keepAlive=keep_alive, sleepAfter=sleep_after, onIdle=on_idle, timeout=timeout, labels=labels)
        if env:
            body["env"] = dict(env)  # None removes a variable
        return SandboxInfo.from_json(await self._call("PATCH", "", body))

    async def set_keep_alive(self, keep_alive: bool = True) -> SandboxInfo:
        """Sets whether the sandbox is kept alive: then it never sleeps."""
        return await self.update(keep_alive=keep_alive)

    async def set_env_vars(self, env: Mapping[str, str | None]) -> SandboxInfo:
        """Sets environment variables of the sandbox; `None` removes one, and the others are kept.

        Programs that start from now on have the variables; code contexts and sessions have them from their next run on.
        """
        return await self.update(env=env)

    # Sleep and copies.

    async def pause(self) -> SandboxInfo:
        """Freezes everything, in memory, until the next use."""
        return SandboxInfo.from_json(await self._call("POST", "/pause"))

    async def resume(self) -> SandboxInfo:
        """Continues a sandbox that is paused or asleep. Every use does that too."""
        return SandboxInfo.from_json(await self._call("POST", "/resume", patience=300.0))

    async def hibernate(self, *, files_only: bool = False) -> SandboxInfo:
        """Puts the sandbox to sleep now: its memory and files go to disk, and its next use wakes it.

        The call fails if the sandbox stays in use. A runtime that cannot save memory keeps only the files: the status is then `stopped`, and the
        call fails while background processes run. With `files_only`, every runtime keeps only the files, and background processes end.
        """
        return SandboxInfo.from_json(await self._call("POST", "/hibernate", body_of(filesOnly=files_only or None), patience=600.0))

    async def snapshot(self, name: str | None = None, *, files_only: bool = False, ttl: float | None = None, shared: bool = False) -> SnapshotInfo:
        """Saves the present state of the sandbox. `create(snapshot=...)` makes sandboxes from it."""
        body = body_of(name=name, filesOnly=files_only or None, ttl=ttl, shared=shared or None)
        return SnapshotInfo.from_json(await self._call("POST", "/snapshots", body, patience=600.0))

    async def fork(self, count: int = 1, *, env: Env | None = None) -> list[Self]:
        """Makes copies of the sandbox in its present state, all or none."""
        answer = await self._call("POST", "/fork", body_of(count=count, env=env), patience=600.0)
        infos = [SandboxInfo.from_json(v) for v in answer]
        return [type(self)(self._transport, info.sandbox_id, info) for info in infos]

    async def commit_image(self, name: str) -> ImageInfo:
        """Makes an image of the files that were written in the sandbox."""
        return ImageInfo.from_json(await self._call("POST", "/image", {"name": name}, patience=600.0))

    # Screen.

    @property
    def screen(self) -> AsyncScreen:
        """Its screen, mouse, keyboard and clipboard. This makes no call: the screen starts with the first use that changes something."""
        return AsyncScreen(self._transport, self._id)

    # Ports.

    async def expose_port(
        self,
        port: int,
        *,
        name: str | None = None,
        token: str | None = None,
        access: Literal["public", "private"] | None = None,
        protocol: Literal["http", "https"] | None = None,
    ) -> ExposedPort:
        """Gives a port a URL, or changes its settings. `protocol` is the protocol of the server in the sandbox."""
        body = {**body_of(name=name, token=token, access=access, protocol=protocol), "port": port}
        return ExposedPort.from_json(await self._call("POST", "/ports", body))

    async def unexpose_port(self, port: int) -> None:
        """Revokes the URL of a port."""
        await self._call("DELETE", "/ports/{port}", port=port)

    async def get_exposed_ports(self) -> list[ExposedPort]:
        return [ExposedPort.from_json(v) for v in await self._call("GET", "/ports")]

    async def validate_port_token(self, port: int, token: str) -> bool:
        """Whether the port is exposed with this token."""
        return bool((await self._call("POST", "/ports/{port}/validate", {"token": token}, port=port))["valid"])

    async def link_port(self, port: int, lifetime: float | None = None) -> PortLink:
        """Signs a URL with which anyone can open an exposed port for a while. `lifetime` is in seconds; default 3600."""
        return PortLink.from_json(await self._call("POST", "/ports/{port}/link", body_of(lifetime=lifetime), port=port))

    def watch_ports(self) -> AsyncPortWatch:
        """Servers that begin to listen, and that stop."""
        return AsyncPortWatch(self._transport, self._request("GET", "/ports"))

    # Network.

    async def get_network(self) -> NetworkState:
        """The network rules of the sandbox, and its traffic so far."""
        return NetworkState.from_json(await self._call("GET", "/network"))

    async def set_network(
        self,
        *,
        mode: NetworkMode | None = None,
        allow: Sequence[str] | None = None,
        block: Sequence[str] | None = None,
        links: Sequence[str] | None = None,
        headers: Sequence[HeaderRule] | None = None,
        proxy: NetworkProxy | None = None,
        limits: NetworkLimits | None = None,
    ) -> NetworkState:
        """Replaces all network rules of the sandbox."""
        body = body_of(mode=mode, allow=allow, block=block, links=links, headers=headers, proxy=proxy, limits=limits)
        return NetworkState.from_json(await self._call("PUT", "/network", body))

    async def allow(self, *rules: str) -> NetworkState:
        """Allows the sandbox more destinations, such as ``pypi.org`` or ``10.1.0.0/16:5432``."""
        network: Network = (await self.get_network()).network
        network.allow = [*network.allow, *rules]
        return NetworkState.from_json(await self._call("PUT", "/network", network.to_json()))

    async def list_connections(
        self, *, after: int | None = None, verdict: Literal["allowed", "denied"] | None = None, limit: int | None = None, wait: float | None = None
    ) -> ConnectionLog:
        """The log of connections that the sandbox made or tried to make."""
        query = query_of(after=after, verdict=verdict, limit=limit, wait=wait)
        return ConnectionLog.from_json(await self._call("GET", "/network/connections", query=query, patience=60.0 + (wait or 0.0)))

    # Timeline.

    async def timeline(
        self,
        *,
        after: int | None = None,
        before: int | None = None,
        id: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        kinds: Sequence[str] = (),
        text: str | None = None,
        limit: int | None = None,
    ) -> TimelinePage:
        """The timeline of the sandbox: the newest entries, or the first ones after a cursor. It works after the sandbox was destroyed, too."""
        query = query_of(
            after=after,
            before=before,
            id=id,
            since=since.astimezone().isoformat() if since else None,
            until=until.astimezone().isoformat() if until else None,
            kind=",".join(kinds) or None,
            text=text,
            limit=limit,
        )
        return TimelinePage.from_json(await self._call("GET", "/timeline", query=query))

    def watch_timeline(self, *, after: int | None = None, kinds: Sequence[str] = (), text: str | None = None, limit: int | None = None) -> AsyncTimelineWatch:
        """The timeline of the sandbox: past entries, and then new ones."""
        query = query_of(after=after, kind=",".join(kinds) or None, text=text, limit=limit)
        return AsyncTimelineWatch(self._transport, self._request("GET", "/timeline", query=query))

    async def stats_history(self, *, since: datetime | None = None, until: datetime | None = None, step: float | None = None) -> StatsHistory:
        """What the sandbox used since it was created, or in a part of that time. It does not wake the sandbox. `step` is the shortest time
        between two samples, in seconds."""
        query = query_of(since=since.astimezone().isoformat() if since else None, until=until.astimezone().isoformat() if until else None, step=step)
        return StatsHistory.from_json(await self._call("GET", "/stats", query=query))

    # Backups, volumes, sharing.

    async def create_backup(self, dir: str | None = None, *, name: str | None = None, ttl: float | None = None) -> BackupInfo:
        """Copies a folder, by default /workspace, into the server's backups."""
        return BackupInfo.from_json(await self._call("POST", "/backups", body_of(dir=dir, name=name, ttl=ttl), patience=None))

    async def restore_backup(self, backup: str | BackupInfo, dir: str | None = None) -> None:
        """Replaces the content of a folder with that of a backup."""
        backup_id = backup if isinstance(backup, str) else backup.id
        path = f"/v1/backups/{check_id('backup', backup_id)}/restore"
        await self._transport.call(Request("POST", path, {**body_of(dir=dir), "sandboxId": self._id}, patience=None))

    async def save_volumes(self) -> list[VolumeInfo]:
        """Saves the volumes that the sandbox can write to. The server does that once a minute, and before the sandbox sleeps."""
        return [VolumeInfo.from_json(v) for v in await self._call("POST", "/volumes", patience=None)]

    async def share(self, token: str, access: Literal["read", "write"] = "read") -> Grant:
        """Lets another token use the sandbox."""
        return Grant.from_json(await self._call("PUT", "/grants/{token}", {"access": access}, token=token))

    async def unshare(self, token: str) -> None:
        await self._call("DELETE", "/grants/{token}", token=token)

    async def list_grants(self) -> list[Grant]:
        return [Grant.from_json(v) for v in await self._call("GET", "/grants")]


__all__ = ["AsyncSandbox", "NetworkMode", "OnIdle"]
