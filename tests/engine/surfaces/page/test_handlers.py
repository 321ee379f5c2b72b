"""One address, and the form that a client asked for."""

import html
import re
import shlex

import aiohttp
import msgspec
import pytest
from yarl import URL

from devkit.cluster import DevCluster
from engine.io.endpoints.server import EndpointServer, ReviewClients, SecureSettings
from engine.lib.clock import SystemClock
from engine.surfaces.live.answers import Leader, PlaceCounts, QueuePage, Refusal
from tests.engine.io.endpoints.harness import endpoints
from tests.engine.surfaces.page import answers
from tests.engine.surfaces.page.site import Site

_HTML = {"Accept": "text/html"}


async def test_a_program_gets_the_record_as_json(site: Site) -> None:
    async with aiohttp.ClientSession(site.url) as session, session.get("/queue") as response:
        body = await response.read()
        assert response.content_type == "application/json"
        assert response.headers["Vary"] == "Accept"
    assert msgspec.json.decode(body, type=QueuePage) == site.answers["/queue"]


async def test_a_browser_gets_html_that_may_run_nothing_of_others(site: Site) -> None:
    policies = set()
    async with aiohttp.ClientSession(site.url) as session:
        for _ in range(2):
            async with session.get("/queue", headers=_HTML) as response:
                text = await response.text()
                policy = response.headers["Content-Security-Policy"]
                policies.add(policy)
            rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
            nonce = rules["script-src"].removeprefix("'nonce-").removesuffix("'")
            assert rules["default-src"] == "'none'"
            assert rules["style-src"] == "'self'"
            assert "unsafe" not in policy
            assert text.count("<script") == text.count(f'<script nonce="{nonce}" src="/static/')
            assert "style=" not in text
            assert "<style" not in text
            assert "http" not in text.replace(site.url, "").replace("http-equiv", "")
    assert len(policies) == 2, "a nonce is for one page"


@pytest.mark.parametrize(
    ("count", "want"),
    [
        pytest.param(0, "No pod waits.", id="none waits"),
        pytest.param(2, "in namespaces whose pods you may not list.", id="none may be seen"),
    ],
)
async def test_a_queue_without_rows_says_if_pods_wait(site: Site, count: int, want: str) -> None:
    site.answers["/queue"] = answers.queue(counts=PlaceCounts(unschedulable=count))
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers=_HTML) as response,
    ):
        text = await response.text()
    assert want in text
    assert text.count('class="empty"') == 1


@pytest.mark.parametrize(
    ("missing", "want"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param(["system_calls", "landlock"], "without system_calls, landlock", id="both"),
    ],
)
async def test_what_the_sandbox_lacks_is_shown(site: Site, missing: list[str], want: str) -> None:
    page = site.answers["/policies"]
    sandbox = {"system_calls": not missing, "landlock": 0, "missing": missing}
    site.answers["/policies"] = msgspec.structs.replace(
        page, active={**page.active, "sandbox": sandbox}
    )
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.get("/policies", headers=_HTML) as response,
    ):
        text = await response.text()
    assert want in text
    assert ("<dt>Sandbox</dt>" in text) is bool(missing)


async def test_the_root_leads_browsers_to_the_queue_and_programs_to_the_paths(site: Site) -> None:
    async with aiohttp.ClientSession(site.url) as session:
        async with session.get("/", headers=_HTML, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (307, "/queue")
        async with session.get("/") as response:
            assert "/queue" in (await response.json())["paths"]


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
async def test_a_refusal_keeps_its_status(site: Site, accept: str) -> None:
    site.status = 429
    site.answers["/queue"] = Refusal(error="too many explanations", hint="ask again")
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers={"Accept": accept}) as response,
    ):
        assert response.status == 429
        assert response.headers["Retry-After"] == "1"
        assert "too many explanations" in await response.text()


async def test_an_address_of_a_leader_that_is_a_script_is_no_link(site: Site) -> None:
    leader = Leader("other", is_us=False, address="javascript:alert(1)")
    site.answers["/queue"] = Refusal(error="standby", leader=leader)
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers=_HTML) as response,
    ):
        assert "javascript:" not in await response.text()


async def test_a_link_with_evil_in_it_is_shown_as_text(site: Site) -> None:
    """Also as a part of the command that is shown to be copied into a shell."""
    address = URL(f"{site.url}/queue?namespace=\"><script>&x='$(reboot)'", encoded=True)
    async with (
        aiohttp.ClientSession() as session,
        session.get(address, headers=_HTML) as response,
    ):
        text = await response.text()
    assert "<script>" not in text
    assert 'value="&#34;&gt;&lt;script&gt;"' in text
    (command,) = re.findall("<code>(curl .*?)</code>", text)
    program, argument = shlex.split(html.unescape(command))
    assert program == "curl"
    assert "reboot" in argument
    # In the words of a shell, nothing of it is outside of quotes.
    assert html.unescape(command) == f"curl {shlex.quote(argument)}"


@pytest.mark.parametrize("header", ["x" * 7000, "text/html;" * 500])
async def test_a_long_accept_header_does_no_harm(site: Site, header: str) -> None:
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers={"Accept": header}) as response,
    ):
        assert response.status == 200


async def test_a_page_is_where_other_hosts_find_it() -> None:
    """The secure listener, by the address that leads to the API server; else the local one."""
    async with DevCluster() as cluster:
        async with endpoints(cluster, SecureSettings("0.0.0.0")) as running:
            server = running.server
            want = f"https://127.0.0.1:{server.secure_port}/"
            assert server.page_address(cluster.url) == want
        async with endpoints(cluster, SecureSettings("::1")) as running:
            server = running.server
            assert server.page_address(cluster.url) == f"https://[::1]:{server.secure_port}/"
    clients = ReviewClients(None, None)
    local = EndpointServer([], secure=None, local_port=0, clients=clients, clock=SystemClock())
    assert local.page_address("") == ""
    await local.start()
    assert local.page_address("") == f"http://127.0.0.1:{local.local_port}/"
    await local.stop()
