"""A pytest plug-in that fails the run when a test was skipped: `-p tests.no_skips`.

`make test` loads it. A missing control plane, tool or data set must not let tests drop out unseen.
"""

import pytest


class _Skips:
    """Collects what was skipped, modules included."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        # An expected failure is reported as skipped too, and is none.
        if report.skipped and not hasattr(report, "wasxfail"):
            self.found.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.found and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.found:
            terminalreporter.section("skipped, and nothing may be skipped here", red=True)
            for nodeid in self.found:
                terminalreporter.line(nodeid)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Skips(), "no-skips")
