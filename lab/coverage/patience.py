"""pytest's plugin for a run that counts: a worker may take its time to write what it has counted."""

from xdist.workermanage import NodeManager

EXIT_S = 300  # xdist kills a worker that is still there 10 s after its last test


def pytest_configure() -> None:
    NodeManager.EXIT_TIMEOUT = EXIT_S
