# ---- what notebooks ask for, and how they show things

ANSWER = "application/vnd.hutch.notebook+json"
DISPLAY = "application/vnd.hutch.display+json"


def silent():
    """Returns whether the run has no number, and leaves no trace in In, Out and _."""
    return os.environ.get("HUTCH_SILENT") == "1"


def fate(display_id=None, update=False, metadata=None):
    """Returns one more form of a result, which says how to display it."""
    form = {}
    if isinstance(display_id, str):
        form["id"] = display_id
        if update:
            form["update"] = True
    if metadata:
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            if len(json.dumps(metadata, allow_nan=False)) <= MAX_TEXT:
                form["metadata"] = metadata
    return {DISPLAY: form} if form else {}


def clear_output(wait=False):
    """Removes what the run has shown, at once or when it shows something else."""
    channel.send({"result": {"data": {DISPLAY: {"clear": True, "wait": bool(wait)}}}})


class Display:
    """A displayed value, which can be replaced."""

    def __init__(self, display_id):
        self.display_id = display_id

    def update(self, value, **options):
        display(value, display_id=self.display_id, update=True, **options)


class Notebook(types.ModuleType):
    """The module hutch_notebook, whose functions answer with a result. Positions count characters."""

    name = "hutch_notebook"

    def __init__(self, interpreter):
        super().__init__(self.name)
        self.interpreter = interpreter
        self.shell = getattr(interpreter, "shell", None)
        self.clear_output = clear_output

    def answer(self, value):
        channel.send({"result": {"data": {ANSWER: value}}})

    def names(self):
        return self.interpreter.module.__dict__

    def complete(self, arguments):
        code, cursor = json.loads(arguments)
        cursor = max(0, min(cursor, len(code)))
        line = code[:cursor].rpartition("\n")[2]
        if self.shell is not None:
            rest = code[cursor:].partition("\n")[0]
            text, matches = self.shell.complete("", line + rest, len(line))
        else:
            text = line[len(line.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")):]
            matches = self.matches(text)
        self.answer({"matches": [str(m)[:1000] for m in matches[:1000]], "cursor_start": cursor - len(text), "cursor_end": cursor})

    def matches(self, text):
        import rlcompleter
        completer, found = rlcompleter.Completer(self.names()), []
        while len(found) < 1000:
            match = completer.complete(text, len(found)) if text else None
            if match is None:
                return found
            found.append(match.rstrip("("))
        return found

    def inspect(self, arguments):
        code, cursor, detail = json.loads(arguments)
        try:
            if self.shell is not None:
                from IPython.utils.tokenutil import token_at_cursor
                data = self.shell.object_inspect_mime(token_at_cursor(code, cursor), detail_level=detail)
            else:
                data = self.describe(code, cursor)
        except Exception:
            data = {}
        clean = {}
        for mime, form in data.items():
            put(clean, mime, clip(form) if isinstance(form, str) else form)
        self.answer(clean)

    def describe(self, code, cursor):
        """Describes a name, without IPython."""
        import inspect
        letters = lambda c: c.isalnum() or c in "_."
        begin = end = max(0, min(cursor, len(code)))
        while begin and letters(code[begin - 1]):
            begin -= 1
        if begin == end and begin and code[begin - 1] == "(":
            begin = end = begin - 1
            while begin and letters(code[begin - 1]):
                begin -= 1
        while end < len(code) and letters(code[end]):
            end += 1
        first, *others = code[begin:end].strip(".").split(".")
        value = self.names()[first] if first in self.names() else getattr(builtins, first)
        for name in others:
            value = getattr(value, name)
        lines = []
        with contextlib.suppress(TypeError, ValueError):
            lines.append("Signature: " + code[begin:end] + str(inspect.signature(value)))
        if not callable(value):
            lines.append("Value: " + plain(value)[:2000])
        lines += ["Type: " + type(value).__name__, inspect.getdoc(value) or ""]
        return {"text/plain": "\n".join(lines)}

    def is_complete(self, arguments):
        (code,) = json.loads(arguments)
        if self.shell is not None:
            status, indent = self.shell.input_transformer_manager.check_complete(code)
            self.answer({"status": status, "indent": " " * (indent or 0)})
            return
        import codeop
        try:
            whole = codeop.compile_command(code, "<input>", "exec") is not None
            status = "complete" if whole else "incomplete"
        except (SyntaxError, OverflowError, ValueError):
            status = "invalid"
        self.answer({"status": status, "indent": "    " if status == "incomplete" and code.rstrip().endswith(":") else ""})

    def expressions(self, arguments):
        values = {}
        for name, code in json.loads(arguments)[0].items():
            try:
                values[name] = {"status": "ok", "data": forms(eval(code, self.names())), "metadata": {}}
            except Exception as e:
                fault = failure(e)
                values[name] = {"status": "error", "ename": fault["name"], "evalue": fault["message"], "traceback": fault["traceback"].splitlines()}
        self.answer(values)
