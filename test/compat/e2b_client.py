"""An unchanged program for E2B: only the environment names another server."""

import json
import pathlib
import tempfile

from e2b import Template, Volume, wait_for_file
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
    results["measured"] = all(m.mem_total > 0 for m in sandbox.get_metrics())
    long = sandbox.commands.run("sleep 600", background=True)  # the client follows its output
    sandbox.pause()
    results["paused"] = sandbox.get_info().state.value
    again = Sandbox.connect(sandbox.sandbox_id)
    results["kept2"] = again.files.read("notes/a.txt")
    results["goesOn"] = any(p.pid == long.pid for p in again.commands.list())
    again.pause(mode="filesystem")
    rebooted = Sandbox.connect(sandbox.sandbox_id)
    results["rebooted"] = rebooted.files.read("notes/a.txt") == "first" and not any(p.pid == long.pid for p in rebooted.commands.list())
finally:
    results["killed"] = sandbox.kill()
ruled = Sandbox.create(network={"rules": {"api.example.com": [{"transform": {"headers": {"Authorization": "Bearer hidden"}}}]}})
try:
    shown = ruled.get_info().network["rules"]
    ruled.update_network({})
    results["rules"] = shown["api.example.com"][0]["transform"]["headers"]["Authorization"] == "[redacted]" and not ruled.get_info().network.get("rules")
finally:
    ruled.kill()
results["gone"] = not sandbox.is_running()

# A volume outlives the sandboxes that have it.
volume = Volume.create("of-python")


def in_volume(command):
    box = Sandbox.create(volume_mounts={"/data": volume})
    try:
        return box.commands.run(command).stdout
    finally:
        box.kill()


in_volume("echo kept >/data/note")
results["volume"] = in_volume("cat /data/note")
results["volumes"] = any(v.name == "of-python" for v in Volume.list()) and Volume.destroy(volume.volume_id) and not Volume.destroy(volume.volume_id)

# A template: an image, files of the client, commands, and a program that runs in every sandbox.
folder = tempfile.TemporaryDirectory()
context = pathlib.Path(folder.name)
(context / "greeting.txt").write_text("from the client")


def begin():
    return Template(file_context_path=context).from_image("debian-for-e2b:1")


template = (
    begin()
    .copy("*.txt", "texts")
    .set_envs({"NUMBER": "1"})
    .run_cmd("whoami > texts/who; pwd > texts/where")
    .set_start_cmd("echo ready > /tmp/ready; sleep 600", wait_for_file("/tmp/ready"))
)
built = Template.build(template, "built-with-python:v1", cpu_count=1, memory_mb=512)
Template.assign_tags("built-with-python:v1", "stable")
tags = sorted(t.tag for t in Template.get_tags("built-with-python"))
results["tagged"] = tags == ["stable", "v1"] and Template.exists(built.template_id)
made = Sandbox.create(f"built-with-python:{built.build_id}")  # exactly this build
try:
    run = made.commands.run('cd texts; echo "$(cat greeting.txt)|$(cat who)|$(cat where)|$NUMBER|$(cat /tmp/ready)"')
    results["built"] = run.stdout.strip()
finally:
    made.kill()
try:
    # The sandbox starts from the image that was built; otherwise grep ends with another status.
    Template.build(Template().from_template("built-with-python:v1").run_cmd("grep client texts/greeting.txt && exit 3"), "built-with-python:bad")
    results["failed"] = False
except Exception as err:
    results["failed"] = "exit status 3" in str(err)
print(json.dumps(results))
