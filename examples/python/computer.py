"""An agent that uses a computer as people do: it looks at the screen, and clicks and types what a model asks for.

The model is a script here, so the program runs without one. A real model needs the same loop: the
actions are those of its computer-use tool, and each picture is returned to the model. The image of the sandbox has
Xtigervnc and xterm.

Run it with HUTCH_URL and HUTCH_TOKEN set, as `hutch serve` prints them.
"""
# Needs: Xtigervnc xterm
# Prints:
# a picture of 640 x 480
# left_click at 200,150
# type
# key
# the program got: Grüße, 世界

from collections.abc import Generator
from typing import Any

from hutch import ControlResult, Hutch, Process, Region, Sandbox

Model = Generator[dict[str, Any], ControlResult, None]


def model() -> Model:
    """Asks for one action after the other, and sees the result of each. A real model gets `result.image.base64`."""
    result = yield {"action": "screenshot"}
    if result.image:
        print(f"a picture of {result.image.width} x {result.image.height}")
    click = {"action": "left_click", "coordinate": [200, 150]}
    result = yield click
    print(f"left_click at {result.cursor.x},{result.cursor.y}")
    for action in ({"action": "type", "text": "Grüße, 世界\n"}, {"action": "key", "text": "ctrl+d"}):
        yield action
        print(action["action"])


def run(sandbox: Sandbox, asked: Model) -> None:
    """Does what the model asks for, until it asks for nothing."""
    action: dict[str, Any] | None = next(asked)
    while action:
        result = sandbox.screen.do(action, {"action": "screenshot"})
        try:
            action = asked.send(result)
        except StopIteration:
            action = None


def open_window(sandbox: Sandbox) -> Process:
    """Starts a program with a window, and waits until it can be seen."""
    part = Region(10, 100, 200, 100)
    empty = sandbox.screen.screenshot(part)
    program = sandbox.start_process("exec xterm -u8 -geometry 200x60+0+0 -e 'cat > typed'")
    for _ in range(600):
        if sandbox.screen.screenshot(part) != empty:
            return program
        sandbox.screen.do({"action": "wait", "duration": 0.2})
    raise TimeoutError("the window did not come")


with Hutch() as hutch, hutch.create(env={"DISPLAY": ":0", "LC_ALL": "C.UTF-8"}) as sandbox:
    sandbox.screen.start(width=640, height=480)
    program = open_window(sandbox)
    run(sandbox, model())
    program.wait_for_exit()
    print("the program got:", sandbox.read_file("typed").strip())
