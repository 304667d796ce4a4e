"""A program for E2B whose sandbox reaches the network through a proxy."""

import json
import os

from e2b import Sandbox

CLOSED = {"deny_out": lambda ctx: [ctx.all_traffic], "allow_out": ["api.example.com"]}
PROXY = {"address": os.environ["PROXY_ADDRESS"], "username": "ann", "password": os.environ["PROXY_PASSWORD"]}

results = {}
sandbox = Sandbox.create(timeout=60, network={**CLOSED, "egress_proxy": PROXY})


def call():
    return sandbox.commands.run("curl -sS -m 20 http://api.example.com/; true").stdout


try:
    results["through"] = call()
    results["shown"] = sandbox.get_info().network.get("egress_proxy")
    sandbox.update_network({**CLOSED, "egress_proxy": {**PROXY, "password": "wrong"}})
    results["wrongPassword"] = call()
    sandbox.update_network(CLOSED)
    results["direct"] = call()
    results["removed"] = not sandbox.get_info().network.get("egress_proxy")
    try:
        sandbox.update_network({"egress_proxy": {"address": "127.0.0.1:1080"}})
        results["refused"] = False
    except Exception as err:
        results["refused"] = "network.proxy.address" in str(err)
finally:
    sandbox.kill()
print(json.dumps(results))
