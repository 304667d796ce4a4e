"""Files and repositories."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any, Literal

from .._errors import InvalidError, NotFoundError, error_of
from .._models import Edit, FileInfo, GitRepository, GitStatus, Match
from .._wire import body_of, check_path, content_of, query_of
from .base import Handle
from .stream import AsyncFileWatch

ArchiveFormat = Literal["tar", "tar.gz", "zip"]
Content = str | bytes | AsyncIterable[bytes]
#: Contents that are sent as a whole, although some of them can be iterated over.
_whole = (str, bytes, bytearray, memoryview)


def _bytes(content: Content) -> bytes | AsyncIterable[bytes]:
    if isinstance(content, _whole) or not isinstance(content, AsyncIterable):
        return content_of("content", content)
    return content


class Files(Handle):
    """Paths are absolute, or relative to /workspace. Names that are not UTF-8 have escaped bytes, as `os.fsdecode` makes them."""

    async def read_file(self, path: str, *, offset: int = 0, length: int = 0, first_line: int = 0, last_line: int = 0) -> str:
        """The text of a file, or of a part of it. `read_bytes` is for files that are not UTF-8."""
        content = await self.read_bytes(path, offset=offset, length=length, first_line=first_line, last_line=last_line)
        try:
            return content.decode()
        except UnicodeDecodeError as e:
            raise InvalidError(
                f"what was read of {path} is not UTF-8 text, as its byte {e.start} is {content[e.start]:#04x}: read it with read_bytes()", data={"path": path}
            ) from e

    async def read_bytes(self, path: str, *, offset: int = 0, length: int = 0, first_line: int = 0, last_line: int = 0) -> bytes:
        """The bytes of a file, or of a part of it. A negative offset counts from the end."""
        request = self._request(
            "GET",
            "/files/content",
            query=query_of(path=check_path(path), offset=offset or None, length=length or None, firstLine=first_line or None, lastLine=last_line or None),
        )
        response = await self._transport.send(request)
        return response.content

    async def stream_file(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file of any size, in pieces."""
        request = self._request("GET", "/files/content", query=query_of(path=check_path(path)))
        async for chunk in self._transport.chunks(await self._transport.open(request)):
            yield chunk

    async def write_file(
        self,
        path: str,
        content: Content,
        *,
        mode: int | None = None,
        append: bool = False,
        create: bool = False,
        parents: bool = True,
    ) -> FileInfo:
        """Writes a file from a text, from bytes or from an iterator of bytes: completely, or not at all. Missing folders above the file are made.

        With `create`, an existing file is refused. `mode` is the permissions, such as 0o644.
        """
        octal = None if mode is None else f"{mode:04o}"
        query = query_of(path=check_path(path), mode=octal, append=append, create=create, parents=parents)
        request = self._request("PUT", "/files/content", query=query, patience=None)
        request.content = _bytes(content)
        return FileInfo.from_json(await self._transport.call(request))

    async def edit_file(self, path: str, old_text: str, new_text: str, *, replace_all: bool = False) -> Edit:
        """Replaces a text in a file. The text must be there exactly once or, with `replace_all`, at least once."""
        body = {**body_of(replaceAll=replace_all or None), "path": path, "oldText": old_text, "newText": new_text}
        return Edit.from_json(await self._call("POST", "/files/edit", body))

    async def stat(self, path: str) -> FileInfo:
        """Describes a file. If the path is a link, describes the link itself."""
        return FileInfo.from_json(await self._call("GET", "/files/stat", query=query_of(path=check_path(path))))

    async def exists(self, path: str) -> bool:
        """Whether there is a file, folder or link at a path."""
        try:
            await self.stat(path)
        except NotFoundError as e:
            if "sandboxId" in e.data and "path" not in e.data:
                raise
            return False
        return True

    async def list_files(
        self,
        path: str = ".",
        *,
        recursive: bool = False,
        depth: int | None = None,
        hidden: bool = False,
        glob: str | None = None,
        limit: int | None = None,
    ) -> list[FileInfo]:
        """The content of a folder, by name."""
        query = query_of(path=check_path(path), recursive=recursive, depth=depth, hidden=hidden, glob=glob, limit=limit)
        return [FileInfo.from_json(v) for v in await self._list("/files", query, "files")]

    async def search_files(self, pattern: str, path: str = ".", *, glob: str | None = None, hidden: bool = False, limit: int | None = None) -> list[Match]:
        """The lines that match a regular expression (RE2)."""
        query = query_of(path=check_path(path), pattern=pattern, glob=glob, hidden=hidden, limit=limit)
        return [Match.from_json(v) for v in await self._list("/files/search", query, "matches")]

    async def _list(self, path: str, query: str, name: str) -> Any:
        """The entries of a list. If the list ended early, its error is raised."""
        answer = await self._call("GET", path, query=query)
        if answer.get("error"):
            raise error_of(answer["error"].get("status", 500), answer["error"])
        return answer[name]

    async def mkdir(self, path: str, *, parents: bool = True) -> None:
        """Makes a folder. With `parents` it also makes those above it, and accepts an existing folder."""
        await self._call("POST", "/files/mkdir", query=query_of(path=check_path(path), parents=parents))

    async def move_file(self, source: str, target: str, *, replace: bool = False) -> None:
        """Moves or renames a file or folder."""
        query = query_of(from_=check_path(source), to=check_path(target), replace=replace)
        await self._call("POST", "/files/move", query=query)

    async def rename_file(self, source: str, target: str, *, replace: bool = False) -> None:
        """The same as `move_file`."""
        await self.move_file(source, target, replace=replace)

    async def copy_file(self, source: str, target: str, *, replace: bool = False) -> None:
        """Copies a file, or a folder with its content."""
        query = query_of(from_=check_path(source), to=check_path(target), replace=replace)
        await self._call("POST", "/files/copy", query=query)

    async def delete_file(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file or, with `recursive`, a folder with its content."""
        await self._call("DELETE", "/files", query=query_of(path=check_path(path), recursive=recursive))

    async def chmod(self, path: str, mode: int) -> None:
        """Changes permissions, to such as 0o755."""
        await self._call("POST", "/files/chmod", query=query_of(path=check_path(path), mode=f"{mode:04o}"))

    def watch(self, path: str = ".", *, recursive: bool = True) -> AsyncFileWatch:
        """Changes to a file or below a folder, as they happen. The first event is `ready`."""
        return AsyncFileWatch(self._transport, self._request("GET", "/files/watch", query=query_of(path=check_path(path), recursive=recursive)))

    async def pack(self, path: str = ".", *, names: Sequence[str] = (), format: ArchiveFormat = "tar.gz") -> bytes:
        """An archive of a folder, or of the named paths in it."""
        query = query_of(path=check_path(path), name=list(names), format=format)
        response = await self._transport.send(self._request("GET", "/files/archive", query=query, patience=None))
        return response.content

    async def unpack(self, path: str, archive: bytes | AsyncIterable[bytes], *, format: ArchiveFormat = "tar.gz") -> None:
        """Unpacks an archive into a folder. Its entries replace existing files."""
        request = self._request("PUT", "/files/archive", query=query_of(path=check_path(path), format=format), patience=None)
        request.content = _bytes(archive)
        await self._transport.call(request)

    async def git_checkout(
        self,
        url: str,
        *,
        branch: str | None = None,
        depth: int | None = None,
        target_dir: str | None = None,
        username: str | None = None,
        password: str | None = None,
        timeout: float | None = None,
    ) -> GitRepository:
        """Clones a repository; its credentials are held in memory only."""
        body = body_of(url=url, branch=branch, depth=depth, dir=target_dir, username=username, password=password, timeout=timeout)
        limit = (600.0 if timeout is None else timeout) + 60.0
        return GitRepository.from_json(await self._call("POST", "/git/clone", body, patience=limit))

    async def git_status(self, dir: str | None = None) -> GitStatus:
        """The branch, and the files that have changed."""
        return GitStatus.from_json(await self._call("GET", "/git/status", query=query_of(dir=dir)))

    async def git_diff(
        self, dir: str | None = None, *, from_commit: str | None = None, to_commit: str | None = None, staged: bool = False, paths: Sequence[str] = ()
    ) -> str:
        """A difference, as git prints it."""
        query = query_of(dir=dir, from_=from_commit, to=to_commit, staged=staged, path=list(paths))
        response = await self._transport.send(self._request("GET", "/git/diff", query=query))
        return response.content.decode("utf-8", "replace")

    async def git_commit(
        self,
        message: str,
        *,
        dir: str | None = None,
        paths: Sequence[str] | None = None,
        author_name: str | None = None,
        author_email: str | None = None,
    ) -> GitRepository:
        """Commits the named files, or all that have changed."""
        body = body_of(message=message, dir=dir, paths=paths, authorName=author_name, authorEmail=author_email)
        return GitRepository.from_json(await self._call("POST", "/git/commit", body))


__all__ = ["ArchiveFormat", "Content", "Files"]
