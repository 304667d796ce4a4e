"""An agent of smolagents with executor_type="e2b", and a fake model whose answers are in this script. Each check prints
a line with its name."""

from smolagents import CodeAgent, Model, Tool
from smolagents.models import ChatMessage
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import E2BExecutor
from smolagents.utils import AgentError


def ok(name: str, holds: bool, detail: object = "") -> None:
    if not holds:
        raise SystemExit(f"{name}: {detail!r}")
    print("ok " + name, flush=True)


class Scripted(Model):
    """A model that answers with one text after another, and records the questions."""

    def __init__(self, *answers: str) -> None:
        super().__init__(model_id="scripted")
        self.answers, self.asked = list(answers), []

    def generate(self, messages, **_) -> ChatMessage:
        self.asked.append(str(messages[-1]))
        return ChatMessage(role="assistant", content=self.answers.pop(0))


def step(code: str) -> str:
    return f"Thought: the next step.\n<code>\n{code}\n</code>"


class Doubled(Tool):
    name = "doubled"
    description = "Doubles a number."
    inputs = {"number": {"type": "integer", "description": "the number"}}
    output_type = "integer"

    def forward(self, number: int) -> int:
        return 2 * number


def agent() -> None:
    model = Scripted(step("x = doubled(20)\nprint('seen', x)"), step("final_answer({'answer': x + 2, 'given': given})"))
    with CodeAgent(tools=[Doubled()], model=model, executor_type="e2b", verbosity_level=0) as one:
        got = one.run("What is it?", additional_args={"given": ["a", 1.5, None]})
    ok("final answer", got == {"answer": 42, "given": ["a", 1.5, None]}, got)
    ok("what the code printed", "seen 40" in model.asked[1], model.asked[1])
    failing = Scripted(step("1 / 0"), step("final_answer('after an error')"))
    with CodeAgent(tools=[], model=failing, executor_type="e2b", verbosity_level=0) as one:
        got = one.run("Divide.")
    ok("an agent continues after an error", got == "after an error" and "ZeroDivisionError" in failing.asked[1], failing.asked[1:])


def executor() -> None:
    box = E2BExecutor([], AgentLogger(LogLevel.OFF))
    try:
        ok("a value", box("40 + 2").output == "42")
        ok("state", box("y = 5").output is None and box("print(y); y + 1").logs.strip() == "5")
        box.send_variables({"numbers": [1, 2, 3], "text": "ä"})
        ok("variables", box("print(sum(numbers), text)").logs.strip() == "6 ä")
        ok("a shell command", "said by a shell" in box("!echo said by a shell").logs)
        ok("an image", box("from IPython.display import Image\nimport base64\nImage(base64.b64decode('" + pixel + "'))").output.size == (1, 1))
        try:
            box("raise ValueError('no')")
        except AgentError as err:
            ok("an error", "ValueError" in str(err) and "no" in str(err), err)
    finally:
        box.cleanup()


pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

agent()
executor()
