"""A program for E2B whose sandbox calls an API with a token that the sandbox itself does not have."""

import json
import os

from e2b import Sandbox, Secret

HOST = "api.example.com"
CLOSED = {"deny_out": lambda ctx: [ctx.all_traffic], "allow_out": [HOST]}


def with_token(token):
    rules = {HOST: [{"transform": {"headers": {"Authorization": "Bearer " + token}}}]}
    return {**CLOSED, "allow_out": lambda ctx: list(ctx.rules.keys()), "rules": rules}


results = {}
sandbox = Sandbox.create(timeout=60, network=with_token(os.environ["RULE_TOKEN"]))


def call():
    return sandbox.commands.run(f"curl -sS -k -m 20 https://{HOST}/; true").stdout


def rules():
    return sandbox.get_info().network.get("rules")


try:
    results["granted"] = call()
    results["shown"] = rules()
    sandbox.pause()
    sandbox.connect()
    results["afterPause"] = call()
    sandbox.update_network(with_token("another-token"))
    results["otherToken"] = call()
    sandbox.update_network({**CLOSED, "rules": results["shown"]})  # the rules as they were read
    results["kept"] = rules()
    sandbox.update_network(CLOSED)
    results["withoutRules"] = call()
    results["removed"] = not rules()
    try:
        sandbox.update_network({"rules": {HOST: [{"transform": {"headers": {"Host": "evil.example.net"}}}]}})
        results["refused"] = False
    except Exception as err:
        results["refused"] = "Host" in str(err)

    made = Secret.create("python-token", os.environ["RULE_TOKEN"], metadata={"team": "billing"})
    results["secret"] = [made.version, made.metadata]
    results["listed"] = made.secret_id in [s.secret_id for s in Secret.list().next_items()]
    sandbox.update_network(with_token(Secret.fill(made.name)))
    results["filled"] = call()
    results["updated"] = Secret.update(made.name, "another-token").version
    results["afterUpdate"] = call()
    results["destroyed"] = [Secret.destroy(made.secret_id), Secret.exists(made.name), Secret.destroy(made.name)]
    results["afterDestroy"] = "PYTHON_TOKEN, which does not exist" in call()
finally:
    sandbox.kill()
print(json.dumps(results))
