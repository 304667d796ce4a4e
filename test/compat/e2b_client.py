"""What a program of E2B's customers does, word for word: only the environment names another server."""

import json

from e2b_code_interpreter import CommandExitException, Sandbox
from e2b_code_interpreter import SandboxQuery

results = {}
sandbox = Sandbox.create(timeout=60, metadata={"a b": "e&f"}, envs={"GREETING": "hello"})
try:
    results["running"] = sandbox.is_running()
    run = sandbox.commands.run("echo $GREETING; echo oops >&2; pwd")
    results["stdout"], results["stderr"] = run.stdout, run.stderr
    try:
        sandbox.commands.run("exit 3")
    except CommandExitException as err:
        results["exit"] = err.exit_code
    sandbox.files.write("notes/a.txt", "first")
    results["read"] = sandbox.files.read("notes/a.txt")
    results["files"] = [f.name for f in sandbox.files.list("notes")]
    results["code"] = sandbox.run_code("x = 20; x + 1").text
    results["kept"] = sandbox.run_code("x * 2").text
    listed = Sandbox.list(query=SandboxQuery(metadata={"a b": "e&f"})).next_items()
    results["listed"] = len(listed) == 1 and listed[0].sandbox_id == sandbox.sandbox_id
    long = sandbox.commands.run("sleep 600", background=True)  # which this client follows
    sandbox.pause()
    results["paused"] = sandbox.get_info().state.value
    again = Sandbox.connect(sandbox.sandbox_id)
    results["kept2"] = again.files.read("notes/a.txt")
    results["goesOn"] = any(p.pid == long.pid for p in again.commands.list())
finally:
    results["killed"] = sandbox.kill()
results["gone"] = not sandbox.is_running()
print(json.dumps(results))
