"""Safe, fast sandboxes for AI agents: the Python SDK of Hutch.

    from hutch import Hutch

    with Hutch() as hutch, hutch.create() as sandbox:
        print(sandbox.exec("echo hello").stdout)

`Hutch` and `Sandbox` wait for each call; `AsyncHutch` and `AsyncSandbox` are the same with `await`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._errors import (
    AuthenticationError,
    CodeExecutionError,
    CommandError,
    ConflictError,
    DeniedError,
    ExhaustedError,
    HutchError,
    HutchTimeoutError,
    InternalError,
    InvalidError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from ._version import __version__

if TYPE_CHECKING:
    from ._async.client import AsyncHutch
    from ._async.commands import AsyncCodeContext, AsyncSession
    from ._async.processes import AsyncProcess
    from ._async.sandbox import AsyncSandbox
    from ._async.stream import (
        AsyncCodeStream,
        AsyncExecStream,
        AsyncFileWatch,
        AsyncLogStream,
        AsyncPortWatch,
        AsyncStatsWatch,
        AsyncTerminal,
        AsyncTimelineWatch,
    )
    from ._models import (
        BackupInfo,
        Brokering,
        ConnectionInfo,
        ConnectionLog,
        ContextInfo,
        Destruction,
        Edit,
        Environment,
        ExposedPort,
        FileEvent,
        FileInfo,
        GitChange,
        GitRepository,
        GitStatus,
        Grant,
        ImageConfig,
        ImageInfo,
        InstanceType,
        Language,
        Limits,
        Match,
        MintedToken,
        Network,
        NetworkLimits,
        NetworkState,
        PortEvent,
        PortLink,
        ProcessInfo,
        Pruned,
        Resources,
        SandboxInfo,
        SecretInfo,
        SnapshotInfo,
        Stats,
        StatsReport,
        TemplateInfo,
        TerminalSize,
        TimelineEntry,
        TimelinePage,
        TokenInfo,
        TokenLimits,
        Traffic,
        Usage,
        UsageReport,
        Version,
        VolumeBucket,
        VolumeInfo,
        VolumeMount,
        VolumeUse,
        WaitFor,
        WaitResult,
    )
    from ._results import CodeError, CodeEvent, CodeResult, ExecResult, InputRequest, Logs, Output, RunResult
    from ._sync.client import Hutch
    from ._sync.commands import CodeContext, Session
    from ._sync.processes import Process
    from ._sync.sandbox import Sandbox
    from ._sync.stream import CodeStream, ExecStream, FileWatch, LogStream, PortWatch, StatsWatch, Terminal, TimelineWatch

#: What is imported with its first use, so that `import hutch` is quick: half of it is for the other kind of program.
_lazy = {
    "_async.client": ["AsyncHutch"],
    "_async.commands": ["AsyncCodeContext", "AsyncSession"],
    "_async.processes": ["AsyncProcess"],
    "_async.sandbox": ["AsyncSandbox"],
    "_async.stream": [
        "AsyncCodeStream",
        "AsyncExecStream",
        "AsyncFileWatch",
        "AsyncLogStream",
        "AsyncPortWatch",
        "AsyncStatsWatch",
        "AsyncTerminal",
        "AsyncTimelineWatch",
    ],
    "_sync.client": ["Hutch"],
    "_sync.commands": ["CodeContext", "Session"],
    "_sync.processes": ["Process"],
    "_sync.sandbox": ["Sandbox"],
    "_sync.stream": ["CodeStream", "ExecStream", "FileWatch", "LogStream", "PortWatch", "StatsWatch", "Terminal", "TimelineWatch"],
    "_results": ["CodeError", "CodeEvent", "CodeResult", "ExecResult", "InputRequest", "Logs", "Output", "RunResult"],
}
_modules = {name: module for module, names in _lazy.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _modules.get(name, "_models")
    try:
        value = getattr(import_module("." + module, __name__), name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "AsyncCodeContext",
    "AsyncCodeStream",
    "AsyncExecStream",
    "AsyncFileWatch",
    "AsyncHutch",
    "AsyncLogStream",
    "AsyncPortWatch",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSession",
    "AsyncStatsWatch",
    "AsyncTerminal",
    "AsyncTimelineWatch",
    "AuthenticationError",
    "CodeContext",
    "CodeError",
    "CodeEvent",
    "CodeExecutionError",
    "CodeResult",
    "CodeStream",
    "CommandError",
    "ConflictError",
    "DeniedError",
    "ExecResult",
    "ExecStream",
    "ExhaustedError",
    "FileWatch",
    "Hutch",
    "HutchError",
    "HutchTimeoutError",
    "InputRequest",
    "InternalError",
    "InvalidError",
    "LogStream",
    "Logs",
    "NotFoundError",
    "Output",
    "PortWatch",
    "Process",
    "RunResult",
    "Sandbox",
    "Session",
    "Terminal",
    "TimelineWatch",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
    "BackupInfo",
    "Brokering",
    "ConnectionInfo",
    "ConnectionLog",
    "ContextInfo",
    "Destruction",
    "Edit",
    "Environment",
    "ExposedPort",
    "FileEvent",
    "FileInfo",
    "GitChange",
    "GitRepository",
    "GitStatus",
    "Grant",
    "ImageConfig",
    "ImageInfo",
    "InstanceType",
    "Language",
    "Limits",
    "Match",
    "MintedToken",
    "Network",
    "NetworkLimits",
    "NetworkState",
    "PortEvent",
    "PortLink",
    "ProcessInfo",
    "Pruned",
    "Resources",
    "SandboxInfo",
    "SecretInfo",
    "SnapshotInfo",
    "Stats",
    "StatsReport",
    "StatsWatch",
    "TemplateInfo",
    "TerminalSize",
    "TimelineEntry",
    "TimelinePage",
    "TokenInfo",
    "TokenLimits",
    "Traffic",
    "Usage",
    "UsageReport",
    "Version",
    "VolumeBucket",
    "VolumeInfo",
    "VolumeMount",
    "VolumeUse",
    "WaitFor",
    "WaitResult",
]
