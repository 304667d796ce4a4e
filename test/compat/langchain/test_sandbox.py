"""LangChain's standard tests of sandboxes, through E2B's package for LangChain. Only the environment names this server."""

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from e2b import Sandbox
from langchain_e2b import E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> SandboxBackendProtocol:
        box = Sandbox.create(timeout=600)
        yield E2BSandbox(sandbox=box)
        box.kill()
