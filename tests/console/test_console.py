"""The console in headless Chromium. TIDEWIRE_REWRITE=1 writes the images of docs/console.md."""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

from tests.fix_server import ServerProcess

pytestmark = pytest.mark.console

IMAGES = Path(__file__).parents[2] / "docs" / "images"
HOSTILE = '<img src=x onerror=alert(1)><script>document.title=1</script>"'
SETUP = (
    "CREATE TABLE sensors (name text NOT NULL, site text)",
    "CREATE TABLE readings (sensor text NOT NULL, celsius numeric(5,1))",
    "INSERT INTO sensors VALUES ('roof', 'north'), ('cellar', 'north'), ('garden', 'south'), ('kiln', 'west')",
    "INSERT INTO readings VALUES ('roof', 31.5), ('cellar', 12.0), ('garden', 22.5), ('kiln', 88.1), ('roof', 29.5)",
    "CREATE MATERIALIZED VIEW warm AS SELECT site, count(*) AS readings, max(celsius) AS hottest "
    "FROM readings JOIN sensors ON sensor = name GROUP BY site",
    "CREATE INDEX readings_by_sensor ON readings (sensor)",
    "CREATE HOLD dashboard ON readings, warm",
)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("data"))
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for statement in SETUP:
            connection.execute(statement.encode())
        connection.execute("SELECT * FROM warm")  # the view's dataflow is hydrated
    yield server
    assert server.stop() == 0


@pytest.fixture
def sql(own_server: ServerProcess) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def driver() -> Iterator[WebDriver]:
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,800"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver: WebDriver, own_server: ServerProcess) -> Iterator[WebDriver]:
    """The console, just loaded. Fails if a script failed or the policy refused something meanwhile."""
    url = f"http://127.0.0.1:{own_server.http_port}/"
    driver.get("about:blank")
    driver.get_log("browser")
    driver.get(url)
    driver.execute_script("localStorage.clear(); sessionStorage.clear(); location.reload()")
    yield driver
    assert [entry for entry in driver.get_log("browser") if "status of 400" not in entry["message"]] == []


def until(holds: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := holds():
                return found
        except Exception:  # an element that was replaced meanwhile
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline
        time.sleep(0.05)


def show(browser: WebDriver, page: str) -> None:
    browser.execute_script(f"location.hash = '#{page}'")


def text(browser: WebDriver) -> str:
    return browser.find_element(By.ID, "page").text


def run(browser: WebDriver, statement: str, *, button: str = "run") -> None:
    until(lambda: browser.find_element(By.ID, "sql"))
    browser.execute_script("document.getElementById('sql').value = arguments[0]", statement)
    browser.find_element(By.ID, button).click()


def cells(browser: WebDriver) -> list[list[str]]:
    rows: list[list[str]] = browser.execute_script(
        "return [...document.querySelectorAll('#output tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return rows


def picture(browser: WebDriver, name: str) -> None:
    if os.environ.get("TIDEWIRE_REWRITE"):
        IMAGES.mkdir(exist_ok=True)
        assert browser.save_screenshot(str(IMAGES / f"console-{name}.png"))


def test_a_statement_runs_and_is_drawn(browser: WebDriver) -> None:
    run(browser, "SELECT site, hottest FROM warm ORDER BY hottest DESC")
    until(lambda: len(cells(browser)) == 3)
    assert cells(browser)[0] == ["west", "88.1"]
    assert len(browser.find_elements(By.CSS_SELECTOR, "#charts rect.mark")) == 3
    run(browser, "SELECT 1 AS a; SELECT 2 AS b")
    until(lambda: cells(browser) == [["2"]])
    run(browser, "SELECT nothing FROM warm")
    error = until(lambda: browser.find_element(By.CSS_SELECTOR, "#output .error"))
    assert 'column "nothing" does not exist' in error.text
    assert "at character 8" in error.text


def test_a_subscription_shows_changes(browser: WebDriver, sql: psycopg.Connection[Any]) -> None:
    run(browser, "SUBSCRIBE (SELECT site, hottest, readings FROM warm)")
    until(lambda: len(cells(browser)) == 3)
    sql.execute("INSERT INTO readings VALUES ('garden', 41.5)")
    until(lambda: ["south", "41.5", "2"] in cells(browser))
    assert len(cells(browser)) == 3
    until(lambda: browser.find_element(By.CSS_SELECTOR, "#charts path.line"))
    assert "1 updates" in browser.find_element(By.ID, "state").text
    picture(browser, "sql")
    subscribers = lambda: sql.execute("SELECT id FROM mz_internal.mz_subscriptions").fetchall()
    assert len(subscribers()) == 1
    browser.find_element(By.ID, "stop").click()
    until(lambda: not subscribers())
    run(browser, "SELECT * FROM sensors", button="follow")
    until(lambda: len(cells(browser)) == 4)
    show(browser, "objects")  # leaving the page ends the subscription
    until(lambda: not subscribers())


def test_the_client_over_a_web_socket(browser: WebDriver) -> None:
    follow = """
        const [done] = arguments;
        import("/client.js").then(async ({ Tidewire }) => {
          const tidewire = new Tidewire();
          const options = { transport: "websocket" };
          for await (const { kind, changes } of tidewire.subscribe("SELECT 7 FROM warm LIMIT 1", options)) {
            return [kind, changes];
          }
        }).then(done, (error) => done(error.message));
    """
    sockets = lambda: [
        entry for entry in browser.get_log("performance") if "Network.webSocketCreated" in entry["message"]
    ]
    sockets()
    assert browser.execute_async_script(follow) == ["snapshot", [{"diff": 1, "row": [7]}]]
    assert len(sockets()) == 1


def test_keys(browser: WebDriver) -> None:
    until(lambda: browser.find_element(By.ID, "status").text == "connected")
    editor = browser.find_element(By.ID, "sql")
    assert browser.switch_to.active_element == editor
    editor.send_keys(Keys.CONTROL, "a")
    editor.send_keys(Keys.DELETE)
    editor.send_keys("SELECT site FROM wa")
    until(lambda: [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#names li")] == ["warm"])
    editor.send_keys(Keys.TAB)
    assert editor.get_attribute("value") == "SELECT site FROM warm"
    editor.send_keys(Keys.CONTROL, Keys.ENTER)
    until(lambda: len(cells(browser)) == 3)
    links = browser.find_elements(By.CSS_SELECTOR, "nav a")
    links[3].send_keys(Keys.ENTER)
    until(lambda: "dashboard" in text(browser))
    assert links[3].get_attribute("aria-current") == "page"


def test_objects_and_holds(browser: WebDriver) -> None:
    show(browser, "objects")
    until(lambda: "public.warm" in text(browser) and "public.readings_by_sensor" in text(browser))
    assert "materialized-view" in text(browser)
    picture(browser, "objects")
    show(browser, "holds")
    until(lambda: "public.readings, public.warm" in text(browser))
    assert "03:00:00" in text(browser)


def test_a_dataflow_is_a_graph(browser: WebDriver) -> None:
    show(browser, "dataflows")
    until(lambda: "public.warm" in text(browser))
    button = until(
        lambda: next(
            one for one in browser.find_elements(By.CSS_SELECTOR, ".choices button") if "public.warm" in one.text
        )
    )
    button.click()
    operators = until(lambda: browser.find_elements(By.CSS_SELECTOR, "svg.graph .operator"))
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg.graph .edge")) >= len(operators) - 1
    titles: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('svg.graph title')].map((title) => title.textContent)"
    )
    assert any("Join" in title for title in titles), titles
    picture(browser, "dataflow")


def test_sessions_can_be_ended(browser: WebDriver, own_server: ServerProcess) -> None:
    with psycopg.connect(own_server.dsn, autocommit=True, application_name="victim") as victim:
        pid = victim.info.backend_pid
        show(browser, "activity")

        def button() -> WebElement:
            (row,) = (row for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr") if f"{pid} " in row.text)
            return row.find_elements(By.TAG_NAME, "button")[1]

        until(lambda: "victim" in text(browser) and "idle" in text(browser))
        until(lambda: button().click() or True)
        with pytest.raises(psycopg.OperationalError):  # 57P01, or the lost connection
            for _ in range(1_000):
                victim.execute("SELECT 1")
                time.sleep(0.01)


def test_sources_and_sinks(browser: WebDriver) -> None:
    show(browser, "sources")
    until(lambda: "There are no sources." in text(browser) and "There are no sinks." in text(browser))


def test_a_plain_role_sees_what_it_may_read(browser: WebDriver, sql: psycopg.Connection[Any]) -> None:
    sql.execute("CREATE USER plain")
    try:
        authorization = "Basic " + base64.b64encode(b"plain:").decode()
        browser.execute_cdp_cmd("Network.enable", {})
        browser.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": {"Authorization": authorization}})
        browser.refresh()
        run(browser, "SELECT current_user")
        until(lambda: cells(browser) == [["plain"]])
        note = "your role may not read them: mz_internal."
        show(browser, "objects")
        until(lambda: "public.warm" in text(browser))
        assert f"{note}mz_arrangements" in text(browser)
        show(browser, "dataflows")
        until(lambda: "Mean step" in text(browser))
        assert f"{note}mz_hydration_statuses, mz_internal.mz_dataflow_operators, mz_internal.mz_arr" in text(browser)
        assert not browser.find_elements(By.CSS_SELECTOR, "svg.graph, .empty")
        show(browser, "sources")
        until(lambda: "There are no sources." in text(browser) and "There are no sinks." in text(browser))
        assert f"{note}mz_source_statistics" in text(browser)
        assert browser.find_element(By.ID, "status").text == "connected"
        for page in ("holds", "activity"):
            show(browser, page)
            until(lambda: "dashboard" in text(browser) or "Subscribers" in text(browser))
            assert "may not read" not in text(browser)
        refused = [entry["message"] for entry in browser.get_log("browser")]
        # Once for each page and table of which it may read nothing, or not all columns (2 of each page).
        assert len(refused) == (1 + 2) + (3 + 2) + (2 + 2)
        assert all("/api/sql" in message and "status of 403" in message for message in refused)
    finally:
        browser.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": {}})
        sql.execute("DROP USER plain")


def test_dark_mode(browser: WebDriver) -> None:
    theme = lambda: browser.execute_script("return document.documentElement.dataset.theme")
    background = lambda: browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (theme(), background()) == ("light", "rgb(246, 248, 250)")
    browser.find_element(By.ID, "theme").click()
    assert (theme(), background()) == ("dark", "rgb(16, 23, 28)")
    browser.refresh()
    assert theme() == "dark"
    show(browser, "dataflows")
    until(lambda: browser.find_elements(By.CSS_SELECTOR, "svg.graph .operator"))
    picture(browser, "dark")


def test_hostile_names_are_text(browser: WebDriver, sql: psycopg.Connection[Any]) -> None:
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    sql.execute(f"CREATE TABLE {quoted} ({quoted} text)".encode())
    try:
        sql.execute(f"INSERT INTO {quoted} VALUES (%s)".encode(), [HOSTILE])  # type: ignore[call-overload]
        sql.execute(f'CREATE HOLD "h{quoted[1:]} ON {quoted}'.encode())
        for page in ("objects", "holds"):
            show(browser, page)
            until(lambda: HOSTILE in text(browser))
        browser.refresh()
        show(browser, "sql")
        run(browser, f"SELECT * FROM {quoted}")
        until(lambda: cells(browser) == [[HOSTILE]])
        run(browser, f"SUBSCRIBE {quoted}")
        until(lambda: cells(browser) == [[HOSTILE]])
        assert browser.title == "Tidewire"
        assert browser.find_elements(By.CSS_SELECTOR, "#page img, #page script") == []
    finally:
        sql.execute(f"DROP TABLE {quoted} CASCADE".encode())


def test_nothing_is_loaded_from_elsewhere(browser: WebDriver, own_server: ServerProcess) -> None:
    loaded: list[str] = browser.execute_script("return performance.getEntriesByType('resource').map(({name}) => name)")
    assert {"/".join(name.split("/")[:3]) for name in loaded} == {f"http://127.0.0.1:{own_server.http_port}"}
    refused = "try { document.body.innerHTML = '<b>'; return 0; } catch (error) { return error.name; }"
    assert browser.execute_script(refused) == "TypeError"
    load = "const image = document.createElement('img'); image.src = arguments[0]; document.body.append(image)"
    browser.execute_script(load, "http://127.0.0.1:9/")
    violations: list[Any] = []
    until(lambda: violations.extend(browser.get_log("browser")) or len(violations) >= 2)
    assert "TrustedHTML" in violations[0]["message"]
    assert "img-src" in violations[-1]["message"]
