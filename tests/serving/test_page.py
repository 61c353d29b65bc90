"""The page, in a real browser: live, light and dark, on a phone, and nothing from outside."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("starlette")
pytest.importorskip("httpx")
pytest.importorskip("playwright")
import httpx
from playwright import sync_api
from support.serving import TOKEN, features, serving, stream

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as engine:
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--disable-gpu"]}
        opened = engine.chromium.launch(**options)
        yield opened
        opened.close()


def test_keys_are_listed_and_searched(browser: Any, tmp_path: Path) -> None:
    anew = ("--model", "nlms", "--target", "y", "--key", "shop")
    xs, ds = stream(60)
    rows = [
        {"key": f"shop {i % 6}", "features": features(x), "answer": float(d)}
        for i, (x, d) in enumerate(zip(xs, ds, strict=True))
    ]
    with serving(tmp_path / "state", *anew) as server:
        assert httpx.post(f"{server.address}/learn", json=rows, timeout=60).status_code == 200
        page = browser.new_page()
        page.goto(server.address)
        page.get_by_text("6 of 6 keys").wait_for()
        assert page.locator("#keys tr").count() == 7
        page.get_by_label("search").fill("SHOP 3")
        page.get_by_text("1 of 6 keys").wait_for()
        assert page.locator("#keys td").first.text_content() == "shop 3"
        page.close()
        server.kill()
    with serving(tmp_path / "state") as server:
        (model,) = httpx.get(f"{server.address}/models", timeout=60).json()["models"]
        assert model["keys"] == 6 and model["rows"] == 60
        assert server.stop() == 0


def test_the_page_is_live_in_light_dark_and_small(browser: Any, tmp_path: Path) -> None:
    anew = ("--model", "newton", "--target", "y", "--intervals", "0.9")
    allowed = {"Authorization": f"Bearer {TOKEN}"}
    xs, ds = stream(400)
    ds[200:] *= 8  # a change
    with serving(tmp_path / "state", *anew, JBOOST_TOKEN=TOKEN) as server:
        rows = [{"id": f"<b>{i}", "features": features(x)} for i, x in enumerate(xs)]
        answers = [{"id": f"<b>{i}", "answer": float(d)} for i, d in enumerate(ds)]
        with httpx.Client(base_url=server.address, headers=allowed, timeout=60) as client:
            for first in range(0, 400, 50):
                chosen = slice(first, first + 50)
                assert client.post("/predict", json=rows[chosen]).status_code == 200
                assert client.post("/learn", json=answers[chosen]).status_code == 200
            asked, messages = set[str](), list[str]()
            for name, scheme, width in (("light", "light", 1100), ("dark", "dark", 1100),
                                        ("phone", "light", 390)):  # fmt: skip
                page = browser.new_page(
                    color_scheme=scheme, viewport={"width": width, "height": 900}
                )
                page.on("request", lambda request: asked.add(request.url))
                page.on("console", lambda message: messages.append(message.text))
                page.on("pageerror", lambda error: messages.append(str(error)))
                page.goto(server.address)
                page.get_by_label("token").fill(TOKEN)
                page.get_by_role("button", name="watch").click()
                page.get_by_text("live", exact=True).wait_for()
                page.get_by_text("400", exact=True).first.wait_for()
                assert page.locator("#errors path").count() == 3
                assert page.locator("#last circle").count() == 60
                assert page.locator(".weight").count() == 3
                assert page.get_by_text("<b>399").count() == 1  # text, and no markup
                assert page.locator("#errors .change").count() >= 1
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
                page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
                if name == "phone":  # it goes on by itself
                    more = {"features": features(xs[0]), "answer": 1.0}
                    client.post("/learn", json=more)
                    page.get_by_text("401", exact=True).first.wait_for()
                page.close()
            assert {re.sub(r"\?.*", "", url) for url in asked if not url.startswith("data:")} <= {
                f"{server.address}/{name}"
                for name in ("", "page.js", "page.css", "events", "models")
            }
            assert [text for text in messages if "401" not in text] == []  # before the token came
            page = browser.new_page(extra_http_headers=allowed)
            page.goto(f"{server.address}/docs")
            assert page.get_by_text("POST /predict", exact=True).count() == 1
            page.close()
        assert server.stop() == 0
