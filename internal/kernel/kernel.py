"""Runs Python for a code context: one process, which keeps its
namespace.

Requests come as lines of JSON on a socket, which is standard input at the
start and moves where user code does not look. Answers go back as lines
"<id><kind><text>" with the id of the run: '+' and '.' are a piece and the last
piece of a message, '!' asks for an acknowledgement when all output so far is read,
'<' says that standard input is open, '$' ends the run with its exit code.
"""
import ast
import base64
import builtins
import contextlib
import fcntl
import functools
import getpass
import importlib
import importlib.machinery
import io
import json
import linecache
import os
import select
import signal
import sys
import threading
import traceback
import types

HIGH = 500  # descriptors from here on are the kernel's own
PIECE = 32 << 10
MAX_TEXT = 1 << 20
MAX_DATA = 5 << 20
MAX_PROMPT = 4 << 10
TABLE = "application/vnd.hutch.table+json"
OURS = [__file__]  # files whose frames are left out above user code in a traceback


class Channel:
    """The socket to the agent."""

    def __init__(self):
        self.fd = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, HIGH)
        self.rest = b""
        self.seq = 0
        self.lock = threading.RLock()
        self.run = None  # id of the current run
        self.critical = 0  # if not 0, the main thread must not be interrupted
        self.pending = False

    @contextlib.contextmanager
    def uninterrupted(self):
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.critical += 1
        try:
            yield
        finally:
            self.critical -= 1
            if self.pending and not self.critical:
                self.pending = False
                raise KeyboardInterrupt

    def on_interrupt(self, signum, frame):
        if self.run is None:
            return
        if self.critical:
            self.pending = True
        else:
            raise KeyboardInterrupt

    def line(self):
        while b"\n" not in self.rest:
            got = os.read(self.fd, 64 << 10)
            if not got:
                os._exit(0)  # the agent closed the connection
            self.rest += got
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def request(self):
        while True:
            line = self.line()
            if line.startswith(b"{"):
                return json.loads(line)
            if line.startswith(b"reborn "):
                reborn(json.loads(line[7:]))
            if line.startswith(b"environ "):
                environ(json.loads(line[8:]))

    def write(self, kind, text=""):
        data = memoryview(f"\n{self.run}{kind}{text}\n".encode("ascii"))
        while data:
            data = data[os.write(self.fd, data) :]

    def sync(self):
        """Returns when the agent has read all that was written so far."""
        with self.uninterrupted(), self.lock:
            if self.run is None:
                return
            self.seq += 1
            self.write("!", str(self.seq))
            while self.line() != b"ack %d" % self.seq:
                pass

    def send(self, message):
        text = json.dumps(message)
        flush()
        with self.uninterrupted(), self.lock:
            if self.run is None:
                return
            self.sync()
            for at in range(0, len(text), PIECE):
                self.write("+" if at + PIECE < len(text) else ".", text[at : at + PIECE])
            self.sync()

    def end(self, code):
        with self.lock:
            self.write("$", str(code))
            self.run = None
            self.pending = False


def environ(changes):
    """Applies a change of the sandbox's variables; None removes a variable."""
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def reborn(env):
    """Adapts this process to a copy of its sandbox, which has another name, and
    whose random numbers must differ from those of other copies."""
    os.environ.update(env)
    for name in "random", "numpy.random", "torch":
        if name in sys.modules:
            with contextlib.suppress(Exception):
                sys.modules[name].seed()
    if "tempfile" in sys.modules:
        sys.modules["tempfile"]._name_sequence = None
    if "_ssl" in sys.modules:  # for an OpenSSL that does not use the kernel's random numbers
        with contextlib.suppress(Exception):
            sys.modules["_ssl"].RAND_add(os.urandom(32), 32.0)


class Stream(io.TextIOWrapper):
    """Standard output or error. A change from one to the other waits until
    the earlier output is read, so that the order is kept."""

    last = None

    def __init__(self, fd):
        super().__init__(
            io.BufferedWriter(io.FileIO(fd, "w", closefd=False), 64 << 10),
            encoding="utf-8", errors="backslashreplace", line_buffering=True,
        )

    def write(self, text):
        if Stream.last is not self:
            before, Stream.last = Stream.last, self
            if before is not None:
                with contextlib.suppress(OSError, ValueError):
                    before.flush()
                channel.sync()
        return super().write(text)

    def close(self):
        pass  # the next run needs the stream


class Input(io.FileIO):
    """Standard input. It reports when code waits for input."""

    prompt, password = "", False

    def __init__(self):
        super().__init__(0, "r", closefd=False)

    def ask(self):
        with contextlib.suppress(OSError, ValueError):
            if not select.select([0], [], [], 0)[0]:
                channel.send({"input": {"prompt": Input.prompt[:MAX_PROMPT], "password": Input.password}})

    def readinto(self, buffer):
        self.ask()
        return super().readinto(buffer)

    def readall(self):
        self.ask()
        return super().readall()


@contextlib.contextmanager
def asking(prompt, password=False):
    Input.prompt, Input.password = str(prompt), password
    try:
        yield
    finally:
        Input.prompt, Input.password = "", False


read = builtins.input


def echoes():
    """Returns whether a prompt is part of the output. A notebook shows it itself."""
    return os.environ.get("HUTCH_PROMPT") != "0"


@functools.wraps(read)
def read_line(prompt="", /):
    with asking(prompt):
        return read(prompt) if echoes() else read()


def read_password(prompt="Password: ", stream=None):
    """Replaces getpass.getpass, because code has no terminal."""
    if echoes():
        print(prompt, end="", file=stream or sys.stderr, flush=True)
    with asking(prompt, password=True):
        return read()


def flush():
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


# ---- values in all their forms

METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_latex_": "text/latex",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_json_": "application/json",
}


def forms(value):
    data = {"text/plain": plain(value)}
    if isinstance(value, type):
        return data
    bundle = attempt(value, "_repr_mimebundle_")
    for mime, form in (bundle or {}).items() if isinstance(bundle, dict) else ():
        put(data, mime, form)
    for name, mime in METHODS.items():
        if mime not in data:
            put(data, mime, attempt(value, name))
    put(data, TABLE, table(value))
    put(data, CHART, chart(value))
    return data


def plain(value):
    text = repr(value)
    if type(value) in (list, dict, tuple, set) and len(text) > 100:
        import pprint
        text = pprint.pformat(value, width=100, sort_dicts=False)
    return clip(text)


def clip(text):
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def attempt(value, name):
    method = getattr(value, name, None)
    if method is None:
        return None
    try:
        form = method()
    except Exception:
        return None
    # A form can have metadata.
    if isinstance(form, tuple) and form:
        form = form[0]
    return form


def put(data, mime, form):
    if form is None or not isinstance(mime, str):
        return
    if isinstance(form, (bytes, bytearray)):
        form = base64.b64encode(form).decode()
    try:
        if len(json.dumps(form, allow_nan=False)) <= MAX_DATA:
            data[mime] = form
    except (TypeError, ValueError, RecursionError):
        pass


def table(value, rows=100, columns=50):
    kind = type(value)
    if kind.__name__ != "DataFrame" or kind.__module__.partition(".")[0] != "pandas":
        return None
    try:
        head = value.iloc[:rows, :columns]
        text = head.to_json(orient="split", date_format="iso", default_handler=str)
        cells = json.loads(text)["data"]
        return {"columns": [str(c) for c in head.columns], "rows": cells, "total": len(value)}
    except Exception:
        return None


def display(*values, raw=False, display_id=None, update=False, metadata=None, **_):
    """Shows values in all their forms."""
    if display_id is True:
        display_id = os.urandom(16).hex()
    for value in values:
        data = value if raw and isinstance(value, dict) else forms(value)
        data = {m: f for m, f in data.items() if f is not None}
        channel.send({"result": {"data": {**data, **fate(display_id, update, metadata)}}})
    return Display(display_id) if display_id else None


# charts.py comes here
# notebook.py comes here

# ---- figures

class Figures:
    """Makes matplotlib import this module as its backend."""

    name = "hutch_figures"

    def find_spec(self, name, path=None, target=None):
        if name == "matplotlib.pyplot" and "MPLBACKEND" not in os.environ:
            with contextlib.suppress(Exception):
                sys.modules["matplotlib"].rcParams["backend"] = "module://" + self.name
        if name == self.name:
            from importlib.machinery import ModuleSpec
            return ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from matplotlib.backend_bases import FigureManagerBase
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        module.FigureCanvas = FigureCanvasAgg
        module.FigureManager = FigureManagerBase
        module.show = lambda *_, **__: self.show()
        remember_boxes()

    def show(self):
        """Shows all open figures and closes them."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        try:
            for number in pyplot.get_fignums():
                figure = pyplot.figure(number)
                png = io.BytesIO()
                figure.savefig(png, format="png", bbox_inches="tight")
                data = {"text/plain": repr(figure)}
                put(data, "image/png", png.getvalue())
                put(data, CHART, chart(figure))
                channel.send({"result": {"data": data}})
        finally:
            pyplot.close("all")


# ---- runs

def failure(error):
    """Describes the exception of a run, without the frames of this program."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename.startswith(tuple(OURS)):
        frames = frames.tb_next
    try:
        message = str(error)
    except Exception as e:
        message = f"<its message raised {type(e).__name__}>"
    try:
        lines = traceback.format_exception(type(error), error, frames)
    except BaseException:
        lines = traceback.format_tb(frames) + [type(error).__name__ + "\n"]
    text = "".join(lines)
    if len(text) > 64 << 10:
        text = text[: 32 << 10] + "\n…\n" + text[-(32 << 10) :]
    return {"name": type(error).__name__, "message": message[: 64 << 10], "traceback": text}


class Interpreter:
    def __init__(self):
        self.pid = os.getpid()
        self.count = 0
        self.loop = None
        self.broken = []  # loops that must not be collected: that would close descriptors that are other files now
        self.saved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH) for fd in (1, 2)]
        self.null = fcntl.fcntl(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), fcntl.F_DUPFD_CLOEXEC, HIGH)
        self.module = types.ModuleType("__main__")
        self.module.__builtins__ = builtins
        sys.modules["__main__"] = self.module

    def evaluate(self, code):
        """Runs code and shows the value of its last expression."""
        self.count += not silent()
        name = "<query>" if silent() else f"<run {self.count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        if tree.body:
            self.execute(tree, name, "exec")
        value = self.execute(last, name, "eval") if last is not None else None
        if value is not None:
            if not silent():
                self.module._ = value
            channel.send({"result": {"main": True, "data": forms(value)}})

    def execute(self, tree, name, mode):
        code = compile(tree, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        value = eval(code, self.module.__dict__)
        return self.complete(value) if code.co_flags & 0x80 else value  # CO_COROUTINE: it awaits

    def complete(self, coroutine):
        """Runs a coroutine to its end. When interrupted, it ends the coroutine."""
        import asyncio
        try:
            os.fstat(self.loop._selector.fileno())  # user code can have closed it
        except Exception:
            self.broken.append(self.loop)
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            with contextlib.suppress(BaseException):
                self.loop.run_until_complete(task)
            raise

    def streams(self, stdin):
        """Gives a run new descriptors 0 to 2, whatever the last run did to them."""
        os.dup2(self.saved[0], 1)
        os.dup2(self.saved[1], 2)
        if stdin:
            fd = os.open(stdin, os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(fd, 0)
            os.close(fd)
            channel.write("<")
        else:
            os.dup2(self.null, 0)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(Input()), encoding="utf-8", errors="surrogateescape")
        sys.stdout, sys.stderr, Stream.last = Stream(1), Stream(2), None

    def run(self, request):
        code = 0
        try:
            self.streams(request.get("stdin"))
            if request.get("dir"):
                os.chdir(request["dir"])
            if request.get("error"):
                channel.send({"error": request["error"]})
                return 1
            self.evaluate(request["code"])
        except SystemExit as e:
            code = self.exit_code(e.code)
        except BaseException as e:
            code = 1
            if os.getpid() == self.pid:
                channel.send({"error": failure(e)})
            else:
                traceback.print_exc()
        if os.getpid() != self.pid:  # user code forked, and the child returned
            flush()
            os._exit(code)
        return code

    def exit_code(self, code):
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 255
        print(code, file=sys.stderr)
        return 1

    def serve(self, request):
        env = {k: os.environ.get(k) for k in request["env"]}
        os.environ.update(request["env"])
        code = 1
        channel.run = request["id"]
        try:
            try:
                code = self.run(request)
                figures.show()
            except BaseException as e:  # a late interrupt, or a figure that fails
                channel.send({"error": failure(e)})
                code = 1
        except BaseException:
            pass
        channel.critical += 1  # no interrupt from here to the end
        flush()
        for k, v in env.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = v
        channel.end(code)
        channel.critical -= 1


# ---- IPython

# The modules that IPython imports for a prompt take as long as all the others,
# and there is no prompt here. Code that needs them imports them later.
SPARED = {"IPython.terminal.embed": types.SimpleNamespace(embed=None), "jedi": None}


class IPython(Interpreter):
    """Makes IPython run the code, with its magics and its history of In and Out.
    Results and errors are reported as by Interpreter."""

    def __init__(self):
        super().__init__()
        sys.modules.update(SPARED)
        try:
            self.shell = self.start()
        finally:
            for name in SPARED:
                sys.modules.pop(name, None)
        self.adapt(self.shell)
        self.fault = None

    def start(self):
        import warnings
        from IPython.core import interactiveshell
        from traitlets.config import Config
        warnings.filterwarnings("ignore", "To exit: use 'exit'")
        OURS.append(os.path.dirname(interactiveshell.__file__))
        config = Config()
        config.HistoryManager.enabled = False  # no history of earlier sessions, so no database and no thread
        config.InteractiveShell.colors = "NoColor"
        config.InteractiveShell.ipython_dir = os.path.join(os.path.dirname(__file__), "ipython")
        return interactiveshell.InteractiveShell.instance(config=config, user_module=self.module)

    def adapt(self, shell):
        """Replaces the parts of IPython that expect a terminal."""
        shell.user_ns["exit"] = shell.user_ns["quit"] = sys.exit  # ends the run, with a code
        shell.loop_runner = self.complete
        shell.system = self.system
        shell.showtraceback = shell.showsyntaxerror = self.note
        shell.enable_gui = lambda gui=None: None
        shell.compile.get_code_name = lambda *_: f"<run {shell.execution_count}>"
        shell.display_pub.publish = self.publish
        shell.display_pub.clear_output = lambda wait=False: clear_output(wait)
        hook = shell.displayhook
        hook.compute_format_data = lambda value: (self.forms(value), {})
        hook.write_format_data = lambda data, _: channel.send({"result": {"main": True, "data": data}})
        hook.start_displayhook = hook.write_output_prompt = hook.finish_displayhook = hook.log_output = lambda *_: None

    def evaluate(self, code):
        self.fault = None
        result = self.shell.run_cell(code, store_history=not silent())
        fault = result.error_before_exec or result.error_in_exec or self.fault
        if fault is not None:
            raise fault

    def note(self, exc_tuple=None, *_, **__):
        """Keeps the error. IPython calls this to print a traceback."""
        fault = (exc_tuple or sys.exc_info())[1]
        self.fault = self.fault or fault

    def forms(self, value):
        data, shown = {}, self.shell.display_formatter.format(value)[0]
        for mime, form in shown.items():
            put(data, mime, clip(form) if mime == "text/plain" else form)
        if data:
            put(data, TABLE, table(value))
            put(data, CHART, chart(value))
        return data

    def publish(self, data, metadata=None, source=None, transient=None, update=False, **_):
        clean = {}
        for mime, form in data.items():
            put(clean, mime, form)
        if clean:
            clean.update(fate((transient or {}).get("display_id"), update, metadata))
            channel.send({"result": {"data": clean}})

    def system(self, command):
        """Runs !command, with its output in the right order."""
        flush()
        channel.sync()
        self.shell.system_raw(command)
        channel.sync()


class NewPackages:
    """Finds packages in the folder of the user's packages, if pip made the folder
    after this process began: Python itself looks there only if the folder existed then."""

    def find_spec(self, name, path=None, target=None):
        if path is None and self.add():
            return importlib.machinery.PathFinder.find_spec(name)
        return None

    def add(self):
        site = sys.modules.get("site")
        folder = getattr(site, "USER_SITE", None)
        if not getattr(site, "ENABLE_USER_SITE", False) or folder in sys.path or not os.path.isdir(folder):
            return False
        sys.path_importer_cache.pop(folder, None)  # it can be recorded as missing
        known = len(sys.path)
        site.addsitedir(folder)
        added = sys.path[known:]
        del sys.path[known:]
        shared = [i for i, p in enumerate(sys.path) if p in site.getsitepackages()]
        at = shared[0] if shared else len(sys.path)  # the user's packages come first
        sys.path[at:at] = added
        return True


def in_child():
    channel.run = None  # a child has no part in the protocol
    channel.lock = threading.RLock()
    os.close(channel.fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)


channel = Channel()
figures = Figures()


def interpret():
    """Returns IPython if the image has it and it is not turned off."""
    if os.environ.get("HUTCH_IPYTHON") != "0":
        with contextlib.suppress(Exception):
            return IPython()
    return Interpreter()


def prepare(modules):
    """Imports modules for a future context. If an import fails, the code of that
    context will see the error."""
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    channel.run = os.environ["HUTCH_PROCESS"]
    channel.write("^")
    channel.run = None


def become(env):
    """Takes over the environment of the context that this spare interpreter is now for."""
    os.environ.clear()
    os.environ.update(env)


def main():
    signal.signal(signal.SIGINT, channel.on_interrupt)
    os.register_at_fork(after_in_child=in_child)
    sys.meta_path.insert(0, figures)
    sys.meta_path.append(NewPackages())
    sys.path[0] = ""
    sys.argv = [""]
    builtins.display = display
    builtins.input = read_line
    getpass.getpass = read_password
    interpreter = interpret()
    sys.modules[Notebook.name] = Notebook(interpreter)
    os.dup2(interpreter.null, 0)
    while True:
        request = channel.request()
        if "prepare" in request:
            prepare(request["prepare"])
        elif "become" in request:
            become(request["become"])
        else:
            interpreter.serve(request)


main()
