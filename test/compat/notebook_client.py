"""Drives kernels with the clients of Jupyter. The environment has JUPYTER_URL and JUPYTER_TOKEN. Each check prints a line with
its name.

The first part makes the three requests of Open WebUI, as its source has them. The second uses the gateway client of
jupyter_server, whose kernel client is one of jupyter_client."""

import asyncio
import functools
import json
import os
import urllib.request
import uuid

import websocket

URL, TOKEN = os.environ["JUPYTER_URL"], os.environ["JUPYTER_TOKEN"]


def ok(name: str, holds: bool, detail: object = "") -> None:
    if not holds:
        raise SystemExit(f"{name}: {detail!r}")
    print("ok " + name, flush=True)


def ask(method: str, path: str):
    with urllib.request.urlopen(urllib.request.Request(f"{URL}/api/{path}?token={TOKEN}", method=method)) as answer:
        body = answer.read()
        return answer.status, json.loads(body) if body else None


def open_webui() -> None:
    status, kernel = ask("POST", "kernels")
    ok("open-webui: a kernel without a body", status == 201, kernel)
    ws = websocket.create_connection(f"{URL.replace('http', 'ws', 1)}/api/kernels/{kernel['id']}/channels?token={TOKEN}", timeout=60)
    id, heard = uuid.uuid4().hex, {}
    content = {"code": "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7", "silent": False, "store_history": True}
    content |= {"user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
    header = {"msg_id": id, "msg_type": "execute_request", "username": "user", "session": uuid.uuid4().hex, "date": "", "version": "5.3"}
    ws.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}))
    while heard.get("status") != "idle":
        m = json.loads(ws.recv())
        if m.get("parent_header", {}).get("msg_id") == id:
            c = m["content"]
            heard[c.get("name", m["msg_type"])] = c.get("text") or c.get("execution_state") or c.get("data")
    ok("open-webui: stdout, stderr and a result", (heard["stdout"], heard["stderr"]) == ("out\n", "err\n") and heard["execute_result"]["text/plain"] == "42", heard)
    ws.close()
    ok("open-webui: the kernel is deleted", ask("DELETE", f"kernels/{kernel['id']}")[0] == 204)


async def gateway() -> None:
    from jupyter_server.gateway import managers
    from jupyter_server.gateway.gateway_client import GatewayClient

    # The kernel client of this release is the only part that sends no token.
    connect = functools.partial(websocket.create_connection, header=[f"Authorization: token {TOKEN}"])
    managers.websocket.create_connection = connect
    settings = GatewayClient.instance()
    settings.url, settings.auth_token = URL, TOKEN
    settings.init_connection_args()
    kernels = managers.GatewayMappingKernelManager()
    specs = managers.GatewayKernelSpecManager(parent=kernels)
    for name in "python3", "javascript", "typescript", "bash":
        logo = await specs.get_kernel_spec_resource(name, "logo-svg.svg")
        ok("gateway: kernelspec " + name, (await specs.get_kernel_spec(name))["name"] == name and b"<svg" in logo)
    id = await kernels.start_kernel(kernel_name="python3")
    manager = kernels.get_kernel(id)
    client = manager.client()
    await client.start_channels()
    await questions(client)
    await runs(client, manager)
    ok("gateway: the kernel is listed", [k["id"] for k in await kernels.list_kernels()] == [id])
    client.stop_channels()
    await kernels.shutdown_kernel(id)
    ok("gateway: the kernel is gone", await kernels.list_kernels() == [])


async def answer(client, id: str):
    while True:
        m = await client.get_shell_msg(timeout=30)
        if m["parent_header"].get("msg_id") == id:
            return m["content"]


async def questions(client) -> None:
    info = await answer(client, client.kernel_info())
    ok("kernel_info", info["language_info"]["name"] == "python" and info["protocol_version"] == "5.3", info)
    got = await run(client, "def greeting(name):\n    'Says hello.'\nvalues = [1, 2]")
    ok("execute", got["reply"]["status"] == "ok", got)
    got = await answer(client, client.complete("greet", 5))
    ok("complete", [m.rstrip("(") for m in got["matches"]] == ["greeting"] and (got["cursor_start"], got["cursor_end"]) == (0, 5), got)
    got = await answer(client, client.inspect("greeting", 3))
    ok("inspect", got["found"] and "Says hello." in got["data"]["text/plain"], got)
    got = await answer(client, client.is_complete("for x in y:"))
    ok("is_complete", got["status"] == "incomplete", got)
    got = await answer(client, client.history(hist_access_type="tail", n=10))
    ok("history", [h[1] for h in got["history"]] == [1], got)
    ok("comm_info", (await answer(client, client.comm_info()))["comms"] == {})


async def run(client, code: str, **more):
    """Runs code, and returns the answer and what the kernel published."""
    id, heard = client.execute(code, **more), []
    while True:
        m = await client.get_iopub_msg(timeout=30)
        if m["parent_header"].get("msg_id") != id:
            continue
        heard.append((m["msg_type"], m["content"]))
        if m["content"].get("execution_state") == "idle":
            return {"reply": await answer(client, id), "heard": heard, "types": [t for t, _ in heard if t != "status"]}


async def runs(client, manager) -> None:
    got = await run(client, "print('a'); display('b'); 6 * 7", user_expressions={"n": "len(values)"})
    ok("messages of a run", got["types"] == ["execute_input", "stream", "display_data", "execute_result"], got)
    ok("execution_count", got["reply"]["execution_count"] == 2 and dict(got["heard"])["execute_result"]["execution_count"] == 2, got)
    ok("user_expressions", got["reply"]["user_expressions"]["n"]["data"]["text/plain"] == "2", got)
    got = await run(client, "1/0")
    ok("an error", got["reply"]["ename"] == "ZeroDivisionError" and "error" in got["types"], got)
    got = await run(client, "7", silent=True)
    ok("silent", got["types"] == [], got)

    client.allow_stdin = True
    id = client.execute("'Hello ' + input('name? ')")
    asked = await client.get_stdin_msg(timeout=30)
    ok("input_request", asked["content"] == {"prompt": "name? ", "password": False}, asked)
    client.input("Ann")
    ok("input_reply", (await answer(client, id))["status"] == "ok")

    id = client.execute("import time; print('on', flush=True); time.sleep(60)")
    while (await client.get_iopub_msg(timeout=30))["msg_type"] != "stream":
        pass
    await manager.interrupt_kernel()
    ok("interrupt", (await answer(client, id))["ename"] == "KeyboardInterrupt")
    await manager.restart_kernel()
    got = await run(client, "greeting")
    ok("restart", got["reply"]["ename"] == "NameError" and got["reply"]["execution_count"] == 1, got)


open_webui()
asyncio.run(gateway())
