"""The fixtures of SWE-ReX's own tests, with Hutch in place of their server. The environment has SWEREX_URL and SWEREX_KEY."""

import os

import pytest
from swerex.runtime.abstract import BashAction, CloseBashSessionRequest, Command, CreateBashSessionRequest
from swerex.runtime.remote import RemoteRuntime


@pytest.fixture
async def remote_runtime():
    box = RemoteRuntime(host=os.environ["SWEREX_URL"], port=None, auth_token=os.environ["SWEREX_KEY"])
    yield box
    await box.close()


@pytest.fixture
async def runtime_with_default_session(remote_runtime):
    await remote_runtime.create_session(CreateBashSessionRequest())
    yield remote_runtime
    await remote_runtime.close_session(CloseBashSessionRequest())


class _Action(BashAction):
    timeout: float | None = 5


class _Command(Command):
    timeout: float | None = 5
