"""The chat page, in a real Chromium, on a real server: a whole run, Stop, reload, cuts, two tabs, and hostile input."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any

import pytest

from .pages import CHROMIUM, HOSTILE, SCRIPT, TOKEN, WORDS, Proxy, Tab, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`"),
]


def test_a_whole_run_with_a_confirmation_code_and_a_picture(tab: Tab) -> None:
    tab.send("draw it")
    tab.wait(".question")
    assert tab.text(".card .state") == "Waits for your yes"
    assert tab.text(".turn.assistant .text strong") == "draw"
    assert tab.count(".card .token-keyword") >= 3
    tab.page.click(".question .primary")
    tab.done()
    assert tab.text(".card .console").split("\n")[:3] == ["number 0", "number 1", "number 2"]
    picture = tab.wait(".card .picture img")
    assert picture.evaluate("picture => picture.decode().then(() => picture.naturalWidth)") == 1
    assert tab.text(".card .state") == "Ran"
    assert "The output was: number 0" in tab.text()
    assert tab.count(".question") == 0
    assert "tokens in" in tab.text(".turn.assistant footer")
    fold = tab.page.query_selector("details.fold")
    assert fold.get_attribute("open") is None
    fold.query_selector("summary").click()
    tab.wait("details.fold .prose >> text=A drawing.")
    assert tab.count(".turn.user") == 1


def test_code_is_edited_before_it_runs_and_a_no_has_a_reason(tab: Tab) -> None:
    tab.send("draw once more")
    tab.wait(".question")
    tab.page.click(".question >> text=Edit")
    tab.page.fill(".editor", "print('edited', 6 * 7)")
    tab.page.click(".question .primary")
    tab.done()
    assert "edited 42" in tab.text(".card .console")
    assert "You edited this" in tab.text(".card")
    tab.send("draw again")
    tab.wait(".question")
    tab.page.click(".question >> text=Decline")
    tab.page.keyboard.press("Escape")  # back to the question: the answer goes on
    tab.page.click(".question >> text=Decline")
    tab.page.fill(".question input", "not <b>now</b>")
    tab.page.keyboard.press("Enter")
    tab.done()
    assert "Not run: not <b>now</b>" in tab.text(".turn:last-child .card")


def test_code_that_raised_is_shown_as_failed_and_a_copied_answer_is_its_markdown(tab: Tab) -> None:
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.send("raise an error")
    tab.page.click(".question .primary")
    tab.done()
    assert tab.text(".card .state.failed") == "Failed"
    assert "ZeroDivisionError" in tab.text(".card .console")
    tab.page.click("[aria-label='Copy the answer']")
    tab.wait("[aria-label='Copied']")
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("It **may** fail:\n\n1. `one`\n2. two\n\n\nThe output was: before\n")


def test_what_went_to_stderr_has_its_own_colour(tab: Tab) -> None:
    """Behind characters of two units, too."""
    tab.send("smile")
    tab.page.click(".question .primary")
    tab.done()
    assert tab.text(".card .console").split() == ["\U0001f600\U0001f600", "two", "three"]
    assert tab.text(".card .console .stderr") == "two"
    assert tab.count(".card .console .stderr") == 1


def test_a_call_behind_a_question_waits_its_turn(tab: Tab) -> None:
    tab.send("two calls")
    tab.wait(".question")
    assert tab.page.locator(".tool .state").all_inner_texts() == ["Waits for your yes", "Waits its turn"]
    tab.page.click(".question .primary")
    tab.done()
    assert "Waits" not in tab.text()


def test_the_header_names_the_model_that_the_server_tells(tab: Tab) -> None:
    """As text, whatever is in it."""
    assert tab.text("#model") == "model <m>"


def test_what_nobody_answered_is_not_shown_as_declined(tab: Tab, monkeypatch: Any) -> None:
    """Code; calls are in the tests of agents."""
    monkeypatch.setattr("streamkit.server.execution._LONGEST", 0.3)
    tab.send("draw too late")
    tab.done()
    assert tab.text(".turn:last-child .card .state") == "Not answered"
    assert "Declined" not in tab.text()
    assert tab.count(".question") == 0


def test_an_answer_shows_that_it_is_worked_on_until_something_of_it_comes(tab: Tab) -> None:
    tab.send("late")
    tab.wait(".worked-on")
    until(lambda: re.fullmatch(r"Working [12] s", tab.text(".worked-on").strip()) is not None, tab.page)
    tab.done()
    assert tab.count(".worked-on") == 0
    tab.send("pay her")
    tab.wait(".question")
    assert tab.count(".worked-on") == 0, "it is the person's turn"
    tab.page.click(".question .primary")
    tab.done()
    assert tab.count(".worked-on") == 0


def test_what_is_sent_while_an_answer_goes_on_waits_its_turn(tab: Tab) -> None:
    tab.send("slow")
    tab.wait("text=word1")
    tab.send("hello")
    assert tab.text("#next-text") == "hello"
    assert tab.page.input_value("#input") == ""
    tab.send("again")
    assert tab.text("#next-text") == "hello\nagain"
    until(lambda: tab.count(".turn.user") == 2, tab.page)
    tab.done()
    assert tab.text(".turn.user:nth-last-child(2) .bubble") == "hello\nagain"
    assert not tab.page.is_visible("#next")


def test_a_stop_gives_back_what_waits_its_turn(tab: Tab) -> None:
    tab.send("slower please")
    tab.wait("text=word1")
    tab.send("hello")
    tab.page.fill("#input", "and more")
    tab.page.keyboard.press("Escape")
    tab.done()
    assert tab.page.input_value("#input") == "hello\nand more"
    assert tab.count(".turn.user") == 1
    assert not tab.page.is_visible("#next")


def test_stop_ends_the_code(tab: Tab, folder: Any) -> None:
    """Within a second on a machine that has nothing else to do."""
    tab.send("endless")
    tab.wait(".question")
    tab.page.keyboard.press("Alt+a")
    tab.wait(".card .console")
    until(lambda: (folder / "beats").exists(), tab.page)
    assert tab.text(".card .state") == "Running"
    until(lambda: tab.text(".line.active").startswith("        "), tab.page)  # the page may be behind the code
    began = time.time()
    tab.page.keyboard.press("Escape")
    tab.done()
    beats = (folder / "beats").read_text().split()
    tab.page.wait_for_timeout(300)
    assert (folder / "beats").read_text().split() == beats, "the code goes on"
    assert float(beats[-1]) - began < 20
    assert "Stopped" in tab.text(".turn footer")
    assert tab.count(".line.active") == 0


def check_slow_answer(tab: Tab) -> None:
    tab.done()
    assert tab.text(".turn.assistant .prose").split() == WORDS
    assert tab.count(".turn.user") == tab.count(".turn.assistant") == 1


def test_a_reload_in_the_middle_of_an_answer_goes_on_with_it(tab: Tab) -> None:
    tab.send("slower please")
    tab.wait("text=word20")
    tab.page.reload()
    tab.wait("text=word20")
    assert tab.page.is_visible("#stop")
    check_slow_answer(tab)


def test_a_cut_connection_resumes_without_loss_or_repeat(tab: Tab, proxy: Proxy) -> None:
    tab.send("slower please")
    for number in (10, 30):
        tab.wait(f"text=word{number}")
        proxy.cut()
    tab.wait("text=word50")
    with proxy.down():
        tab.wait("#connection:not(:empty)")
        shown = tab.text(".turn.assistant .prose").split()
        assert shown == WORDS[: len(shown)], "at its end the answer would come as a whole"
    check_slow_answer(tab)
    assert tab.text("#connection") == ""


def test_two_tabs_show_one_run_one_of_them_answers_and_neither_loads_it_again(tab: Tab) -> None:
    tab.send("draw for two")
    tab.wait(".question")
    other = tab.another()
    other.wait(".question")
    loaded: list[str] = []
    for one in (tab, other):
        one.page.on(
            "request", lambda request: loaded.append(request.url) if request.url.endswith("/messages") else None
        )
    other.page.click(".question .primary")
    for one in (tab, other):
        one.done()
        assert "number 2" in one.text(".card .console")
        assert one.count(".question") == 0
        assert one.count(".picture img") == 1
        assert one.count(".turn.user") == 1
    other.page.evaluate("new BroadcastChannel('streamkit').postMessage({})")
    with tab.page.expect_response(re.compile("/conversations")):
        other.page.evaluate("new BroadcastChannel('streamkit').postMessage({})")
    assert loaded == []
    # A tab that shows the conversation follows what the other one begins.
    other.send("and then?")
    tab.wait("text=You said: and then?")
    tab.done()
    assert tab.count(".turn.user") == 2
    other.page.close()
    assert other.faults == []


def test_conversations_are_listed_opened_and_deleted(tab: Tab) -> None:
    tab.send("first of two")
    tab.done()
    tab.page.keyboard.press("Alt+n")
    tab.wait("#empty:not([hidden])")
    tab.send("second of two")
    tab.done()
    tab.wait("#conversations >> text=second of two")
    tab.page.click("#conversations >> text=first of two")
    tab.wait("text=You said: first of two")
    assert tab.text("#title") == "first of two"
    tab.page.go_back()
    tab.wait("text=You said: second of two")
    item = tab.page.locator("#conversations li", has_text="second of two").first
    item.hover()
    item.locator("[title^=Delete]").click()
    tab.page.click("#conversations .danger")
    tab.wait("#empty:not([hidden])")
    tab.page.locator("#conversations >> text=second of two").first.wait_for(state="detached")


def test_an_answer_is_tried_again_and_a_failure_is_shown(tab: Tab) -> None:
    tab.send("hello")
    tab.done()
    tab.page.evaluate("document.querySelector('.turn > footer').dataset.isOld = ''")
    tab.page.click(".retry")
    tab.wait(".turn > footer:not([data-is-old])")
    assert tab.count(".turn.user") == tab.count(".turn.assistant") == 1
    tab.send("fail now")
    tab.wait(".turn .problem")
    assert "failed" in tab.text(".turn .problem")
    assert tab.count(".turn.user") == 2


def test_a_tool_call_is_folded_with_its_arguments_and_output(tab: Tab) -> None:
    tab.send("tool please")
    tab.wait(".question, .turn > footer")
    if tab.count(".question"):
        tab.page.click(".question .primary")
    tab.done()
    tab.page.click(".fold.tool summary")
    assert '"city": "Oslo"' in tab.text(".fold.tool")
    assert "It rains in Oslo." in tab.text(".fold.tool")


def test_what_a_model_writes_is_harmless_in_every_field(tab: Tab) -> None:
    tab.send(f"hostile {SCRIPT} [x](javascript:alert(1))")
    tab.wait(".question")
    while question := tab.page.query_selector(".question"):
        question.query_selector(".primary").click()
        question.wait_for_element_state("hidden")
        tab.wait(".question, .turn:last-child > footer")
    tab.done()
    for summary in tab.page.query_selector_all("details.fold summary"):
        if summary.is_visible():
            summary.click()
    found = tab.page.evaluate(
        """() => ({
          harmed: window.harmed ?? 0,
          scripts: document.querySelectorAll("main script, aside script, iframe, object, embed, form[action]").length,
          handlers: [...document.querySelectorAll("*")].flatMap((one) => one.getAttributeNames()).filter((n) => n.startsWith("on")),
          links: [...document.querySelectorAll("main a[href], aside a[href]")].map((a) => a.getAttribute("href")),
          pictures: [...document.images].map((one) => one.src.slice(0, 10)).filter((src) => !src.startsWith("data:image")),
        })"""
    )
    assert (found["harmed"], found["scripts"], found["handlers"], found["pictures"]) == (0, 0, [], [])
    assert all(re.match(r"https?://|mailto:", link) for link in found["links"]), found["links"]
    assert SCRIPT in tab.text(), "it stands there as text"
    assert tab.page.evaluate("getComputedStyle(document.querySelector('.ansi-f1')).fontWeight") == "700"
    printed = tab.text(".card .console")
    assert printed.rstrip("\n").endswith("red done"), printed
    until(lambda: "<script>" in tab.text("#conversations"), tab.page)  # a title is text as well


def test_forged_answers_foreign_pages_and_wrong_tokens_are_refused(tab: Tab, proxy: Proxy) -> None:
    """Nothing of it runs the code."""
    tab.send("draw nothing")
    tab.wait(".question")
    post = """async ([url, body, headers = {}, credentials = "include"]) => {
      const sent = { method: "POST", headers: { "content-type": "application/json", ...headers }, credentials };
      return fetch(url, { ...sent, body: JSON.stringify(body) }).then((response) => response.status, (error) => error.name);
    }"""
    runs = tab.page.evaluate("() => fetch('/runs?status=in_progress').then((response) => response.json())")["runs"]
    [question] = runs[0]["pending"]
    answers = f"{proxy.url}/runs/{runs[0]['id']}/answers/"
    assert tab.page.evaluate(post, [answers + "another", {"approved": True}]) == 404
    for forged in ({"approved": "true"}, {"approved": 1}, {}, {"approved": False, "edited": "print(1)"}):
        assert tab.page.evaluate(post, [answers + question["id"], forged]) == 422, forged
    wrong = {"authorization": "Bearer wrong"}
    assert tab.page.evaluate(post, [f"{proxy.url}/session", {}, wrong, "omit"]) == 401
    # A page of another origin, in a browser that has the cookie, and one that guesses it.
    evil = tab.page.context.new_page()
    evil.route("http://evil.test/", lambda route: route.fulfill(body="<p>evil</p>", content_type="text/html"))
    evil.goto("http://evil.test/")
    assert evil.evaluate(post, [answers + question["id"], {"approved": True}]) == "TypeError"
    assert evil.evaluate(
        "url => fetch(url, {mode: 'no-cors', credentials: 'include'}).then((r) => r.type, () => 'no')",
        f"{proxy.url}/runs",
    ) in ("opaque", "no")
    frame = evil.evaluate(
        """(url) => new Promise((resolve) => {
          const frame = document.createElement("iframe");
          frame.onload = () => resolve(frame.contentDocument === null ? "refused" : "blank");
          frame.src = url;
          document.body.append(frame);
        })""",
        proxy.url,
    )
    assert frame in ("refused", "blank")
    assert all(
        "evil" in one.url or one.evaluate("document.body.innerText.trim()") == "" or "streamkit" not in one.title()
        for one in evil.frames
    )
    state = tab.page.evaluate("id => fetch(`/runs/${id}`).then((response) => response.json())", runs[0]["id"])
    assert [one["status"] for one in state["pending"]] == ["pending"]
    assert tab.text(".card .state") == "Waits for your yes"
    evil.close()
    tab.page.keyboard.press("Alt+x")
    tab.done()


def test_a_page_without_the_token_asks_for_it(browser: Any, proxy: Proxy) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{proxy.url}/#token=wrong")
    page.wait_for_selector("#login[open]")
    page.fill("#token", "still wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#login-problem:not([hidden])")
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#empty:not([hidden])")
    context.close()


# -- how it looks, and how it is used without eyes or a mouse

CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const low = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (parent.closest(".hidden-text, :disabled, noscript, script")) continue;
    const [a, b] = [light(parse(getComputedStyle(parent).color)), light(ground(parent))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.add(`${parent.tagName}.${parent.className}: ${node.data.trim().slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return [...low];
}"""


def test_text_can_be_read_in_both_themes_and_nothing_overflows_on_a_phone(own_tab: Tab) -> None:
    own_tab.send("draw")
    own_tab.wait(".question")
    for theme in ("light", "dark"):
        own_tab.page.emulate_media(color_scheme=theme)
        assert own_tab.page.evaluate(CONTRAST) == [], theme
    own_tab.page.set_viewport_size({"width": 360, "height": 740})
    wide = "() => [document.documentElement.scrollWidth, document.getElementById('scroller').scrollWidth - document.getElementById('scroller').clientWidth]"
    assert own_tab.page.evaluate(wide) == [360, 0]
    for name in ("Run", "Edit", "Decline"):
        box = own_tab.page.locator(".question button", has_text=name).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360 and box["height"] >= 32
    own_tab.page.click(".question .primary")
    own_tab.done()
    own_tab.send("hostile " + "x" * 500)
    own_tab.wait(".question")
    assert own_tab.page.evaluate(wide) == [360, 0]
    own_tab.page.click("#open-side")
    own_tab.page.wait_for_selector("#new", state="visible")
    own_tab.page.keyboard.press("Escape")
    own_tab.page.keyboard.press("Escape")
    own_tab.done()
    own_tab.page.click("#theme")
    own_tab.page.reload()
    assert own_tab.page.evaluate("document.documentElement.dataset.theme") == "light"


def test_forced_colours_mark_the_running_line_and_the_open_conversation_alone(tab: Tab, folder: Any) -> None:
    tab.page.emulate_media(forced_colors="active")
    tab.send("endless in forced colours")
    tab.page.click(".question .primary")
    tab.wait(".line.active")
    looks = """(selector) => [...document.querySelectorAll(selector)].map((one) => {
      const { backgroundColor, borderLeftColor } = getComputedStyle(one);
      return [one.matches(".active, [aria-current]"), `${backgroundColor} ${borderLeftColor}`];
    })"""
    for selector in (".code .line", "#conversations .open"):
        marked = {look for is_marked, look in tab.page.evaluate(looks, selector) if is_marked}
        others = {look for is_marked, look in tab.page.evaluate(looks, selector) if not is_marked}
        assert len(marked) == 1 and not marked & others, selector
    borders = "[...document.querySelectorAll('.line:not(.active)')].map((one) => getComputedStyle(one).borderLeftColor)"
    ground = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert {*tab.page.evaluate(borders)} == {ground}, "a border of every line looks as if it ran"
    tab.page.keyboard.press("Escape")
    tab.done()


def test_code_that_waits_has_line_numbers_and_a_wrapped_line_is_indented(tab: Tab) -> None:
    """The numbers are not copied with the code."""
    tab.page.set_viewport_size({"width": 360, "height": 740})
    tab.send("draw")
    tab.wait(".question")
    lines = """() => [...document.querySelectorAll(".card .line")].map((one) => {
      const range = document.createRange();
      range.selectNodeContents(one);
      const lefts = [...new Map([...range.getClientRects()].map(({ top, left }) => [Math.round(top), left]).reverse()).values()];
      return [getComputedStyle(one, "::before").content, Math.min(...lefts.slice(0, -1)), lefts.at(-1)];
    })"""
    found = tab.page.evaluate(lines)
    assert [content for content, *_ in found] == ['counter(line) / ""'] * 4
    wrapped, first = found[-1][1:]
    assert wrapped > first + 5
    assert tab.text(".card .code").startswith("from IPython")
    tab.page.keyboard.press("Alt+x")
    tab.done()


def test_a_table_that_is_cut_shows_that_it_scrolls(tab: Tab) -> None:
    """By a shade at the edge beyond which there is more, and there alone."""
    tab.page.set_viewport_size({"width": 360, "height": 740})
    tab.send("wide")
    tab.done()
    table = tab.page.locator(".prose .table")
    assert table.evaluate("one => one.scrollWidth > one.clientWidth")
    assert "local" in table.evaluate("one => getComputedStyle(one).backgroundAttachment")

    def brightness(side: float) -> float:
        shot = "data:image/png;base64," + base64.b64encode(table.screenshot()).decode()
        script = """async ([source, side]) => {
          const image = new Image();
          image.src = source;
          await image.decode();
          const canvas = new OffscreenCanvas(image.width, image.height);
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0);
          const x = Math.round(side * (image.width - 1)) + (side ? -3 : 3);
          return context.getImageData(x, Math.round(image.height * 0.7), 1, 1).data[0];
        }"""
        return float(tab.page.evaluate(script, [shot, side]))

    left, right = brightness(0), brightness(1)
    assert right < left - 5
    table.evaluate("one => (one.scrollLeft = one.scrollWidth)")
    until(lambda: brightness(0) < brightness(1) - 5, tab.page)


def test_a_server_that_is_back_is_found_within_two_seconds(own_tab: Tab, proxy: Proxy) -> None:
    """However long it was away: each two seconds of the page's clock bring an attempt."""
    own_tab.send("slower please")
    own_tab.wait("text=word1")
    attempts: list[str] = []
    own_tab.page.on(
        "request", lambda request: attempts.append(request.url) if request.url.endswith("/events") else None
    )
    own_tab.page.clock.install()
    with proxy.down():
        own_tab.wait("#connection:not(:empty)")
        for _ in range(8):
            before = len(attempts)
            own_tab.page.clock.run_for(2100)
            until(lambda before=before: len(attempts) > before, own_tab.page)  # type: ignore[misc]
            until(lambda: own_tab.text("#connection") != "", own_tab.page)
    own_tab.page.clock.resume()
    own_tab.done()
    assert own_tab.text(".turn.assistant .prose").split() == WORDS


def test_of_a_long_conversation_only_what_is_seen_is_laid_out(own_tab: Tab) -> None:
    """Of 500 messages: so it is shown at once. What is laid out later moves nobody."""
    visible = "[...document.querySelectorAll('.turn > h2')].filter((one) => one.checkVisibility({ contentVisibilityAuto: true })).length"
    show = """async () => {
      const { ConversationView } = await import("/conversation.js");
      const view = new ConversationView(log, scroller, () => {}, (follows) => (window.follows = follows), () => {});
      empty.hidden = true;
      view.show(Array.from({ length: 500 }, (_, at) => ({ id: `m${at}`, role: at % 2 ? "assistant" : "user", type: "message", content: `# ${at}\n\nword `.repeat(1 + (at % 9)) })));
      view.scrollToEnd();
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 100)));
    }"""
    own_tab.page.evaluate(show)
    assert own_tab.count(".turn") == 500
    assert 2 <= own_tab.page.evaluate(visible) < 60
    left = "scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop"
    for width in (360, 1200, 500):
        own_tab.page.set_viewport_size({"width": width, "height": 700})
        until(lambda: own_tab.page.evaluate(left) <= 1, own_tab.page)
    assert own_tab.page.evaluate("window.follows")


def test_screen_readers_and_the_keyboard_reach_everything(tab: Tab) -> None:
    said = "() => { window.said = []; new MutationObserver(() => window.said.push(announcer.textContent)).observe(announcer, { childList: true }); }"
    tab.page.evaluate(said)
    tab.send("draw")
    tab.wait(".question")
    unnamed = """() => [...document.querySelectorAll("button, textarea, input, [role=group], details > summary")]
      .filter((one) => one.checkVisibility() && !(one.innerText?.trim() || one.ariaLabel || one.labels?.length)).map((one) => one.outerHTML)"""
    assert tab.page.evaluate(unnamed) == []
    log = tab.page.query_selector("#log")
    assert [log.get_attribute(name) for name in ("role", "aria-live", "aria-busy")] == ["log", "off", "true"]
    tab.page.focus("#input")
    tab.page.keyboard.press("Shift+Tab")
    names = []
    for _ in range(8):
        names.append(tab.page.evaluate("document.activeElement.innerText || document.activeElement.ariaLabel || ''"))
        tab.page.keyboard.press("Shift+Tab")
    assert [name for name in names if name in ("Run", "Edit", "Decline")] == ["Decline", "Edit", "Run"]
    tab.page.locator(".question .primary").focus()
    tab.page.keyboard.press("Enter")
    tab.done()
    assert log.get_attribute("aria-busy") == "false"
    told = tab.page.evaluate("window.said")
    assert len(told) < 8, "not each token"
    assert told[0].startswith("Code waits") and told[-1] == "The answer is complete."
    tab.page.locator("#theme").focus()
    tab.page.keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.id") == "input"
    tab.page.keyboard.type("two")
    tab.page.keyboard.press("Shift+Enter")
    tab.page.keyboard.type("lines")
    assert tab.page.input_value("#input") == "two\nlines"


# -- its modules


def evaluate(tab: Tab, source: str, argument: Any = None) -> Any:
    """What a function gives, which gets the page's modules and an argument."""
    modules = "Object.fromEntries(await Promise.all(['markdown', 'highlight', 'console'].map(async (n) => [n, await import(`/${n}.js`)])))"
    return tab.page.evaluate(f"async (argument) => (({source})({modules}, argument))", argument)


MARKDOWN = {
    "a *b* **c** ***d*** ~~e~~ `f*g*`": "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> <del>e</del> <code>f*g*</code></p>",
    "snake_case_name and 2*3*4": "<p>snake_case_name and 2<em>3</em>4</p>",
    "**not closed": "<p>**not closed</p>",
    "\\*a\\* &lt;b&gt; &amp; &#65; &unknown;": "<p>*a* &lt;b&gt; &amp; A &amp;unknown;</p>",
    "# One\nTwo\n===\n### Three ###": '<h3 class="h1">One</h3><h3 class="h1">Two</h3><h5 class="h3">Three</h5>',
    "- a\n- b\n  - c\n\n1. d\n2. e": "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol><li>d</li><li>e</li></ol>",
    "3. c\n4. d": '<ol start="3"><li>c</li><li>d</li></ol>',
    "- [x] done\n- [ ] open": '<ul><li class="task"><input type="checkbox" disabled="" checked="" aria-label="done">done</li>'
    '<li class="task"><input type="checkbox" disabled="" aria-label="done">open</li></ul>',
    "> a\n> > b\nc": "<blockquote><p>a</p><blockquote><p>b\nc</p></blockquote></blockquote>",
    "a\n\n---\n\nb  \nc": "<p>a</p><hr><p>b<br>c</p>",
    "<b>x</b> <script>y</script>": "<p><b>x</b> &lt;script&gt;y&lt;/script&gt;</p>",
    "[a](javascript:x) [b](/c)": "<p><span>a</span> <span>b</span></p>",
}


def test_markdown_becomes_these_nodes(tab: Tab) -> None:
    source = """({ markdown }, texts) => texts.map((text) => {
      const root = document.createElement("div");
      new markdown.MarkdownView(root).update(text);
      return root.innerHTML;
    })"""
    made = evaluate(tab, source, [*MARKDOWN])
    assert dict(zip(MARKDOWN, made, strict=True)) == MARKDOWN
    links = evaluate(
        tab,
        source,
        [
            '[a **b**](https://x.org/a_(b)?c=1 "t"), https://y.org/z. <mailto:a@b.c>',
            "```python\nx = 1\n```\n|a|b|\n|-|:-:|\n|`c|d`|e|",
        ],
    )
    assert re.findall(r'href="([^"]*)"', links[0]) == ["https://x.org/a_(b)?c=1", "https://y.org/z", "mailto:a@b.c"]
    assert 'rel="noopener noreferrer nofollow"' in links[0] and ">a <strong>b</strong></a>" in links[0]
    assert '<span class="token-number">1</span>' in links[1] and '<td class="center">e</td>' in links[1]


def test_text_that_grows_is_shown_as_if_it_had_come_at_once(tab: Tab) -> None:
    """At each character; and what has ended is not made again: 100 KB in 1,000 deltas makes few nodes more than it has."""
    source = """({ markdown }, texts) => texts.map((text) => {
      const [whole, grown] = [document.createElement("div"), document.createElement("div")];
      const view = new markdown.MarkdownView(grown);
      for (let end = 1; end <= text.length; end += 1) {
        view.update(text.slice(0, end));
        if (end % 7 && end < text.length) continue;
        whole.replaceChildren();
        new markdown.MarkdownView(whole).update(text.slice(0, end));
        if (whole.innerHTML !== grown.innerHTML) return [text.slice(0, end), whole.innerHTML, grown.innerHTML];
      }
      return null;
    })"""
    many = (
        "\n\n".join(MARKDOWN)
        + "\n\n```js\nlet a = `b\nc`; // d\n```\n\n|a|b|\n|-|-|\n|c|d|\n\nend\n---\n\n    code\n"
        + HOSTILE
    )
    assert evaluate(tab, source, [many, *MARKDOWN]) == [None] * (len(MARKDOWN) + 1)
    section = (
        "## Title\n\nSome *text* with `code` and [a link](https://x.org), which goes on for a while.\n\n- one\n- two\n\n```python\n"
        + "print('a line')\n" * 40
        + "```\n\n"
    )
    long = section * (100_000 // len(section))
    growing = """({ markdown }, text) => {
      const root = document.createElement("div");
      let made = 0;
      const view = new markdown.MarkdownView(root);
      const observer = new MutationObserver(() => {});
      observer.observe(root, { childList: true, subtree: true });
      for (let end = 0; end < text.length; end += text.length / 1000) {
        view.update(text.slice(0, end));
        for (const { addedNodes } of observer.takeRecords()) for (const one of addedNodes) made += 1 + (one.querySelectorAll?.("*").length ?? 0);
      }
      return [made, root.querySelectorAll("*").length];
    }"""
    made, there = evaluate(tab, growing, long)
    assert made < 3 * there


def test_consoles_overwrite_colour_and_drop_what_is_for_terminals(tab: Tab) -> None:
    source = """({ console: module }, pieces) => {
      const view = new module.ConsoleView();
      let text = "";
      for (const piece of pieces) view.update((text += piece));
      return [view.element.textContent, view.element.innerHTML];
    }"""
    whole = "10%\r50%\r100%\nab\bc\x1b[K\n\x1b[1;32mgo\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 \x1b[2J<b>\x00"
    text, html = evaluate(tab, source, [whole])
    assert text == "100%\nac\ngo link <b>"
    assert '<span class="ansi-bold ansi-f2">go</span>' in html and "&lt;b&gt;" in html
    assert evaluate(tab, source, [*whole]) == [text, html]


def test_code_is_highlighted_in_these_languages(tab: Tab) -> None:
    source = """({ highlight }, [language, text]) => {
      const view = new highlight.CodeView(language);
      view.update(text.slice(0, 5));
      view.update(text);
      return [...view.code.querySelectorAll("span[class^=token]")].map((one) => [one.className.slice(6), one.textContent]);
    }"""
    cases: dict[tuple[str, str], list[list[str]]] = {
        ("python", 'x = """a\nb""" # c\nif f(1): pass'): [
            ["string", '"""a'],
            ["string", 'b"""'],
            ["comment", "# c"],
            ["keyword", "if"],
            ["function", "f"],
            ["number", "1"],
            ["keyword", "pass"],
        ],
        ("bash", "if x; then echo $HOME # c"): [
            ["keyword", "if"],
            ["keyword", "then"],
            ["variable", "$HOME"],
            ["comment", "# c"],
        ],
        ("js", "const a = `b\nc`; /* d\ne */ null"): [
            ["keyword", "const"],
            ["string", "`b"],
            ["string", "c`"],
            ["comment", "/* d"],
            ["comment", "e */"],
            ["literal", "null"],
        ],
        ("json", '{"a": ["b", 1, true]}'): [["key", '"a"'], ["string", '"b"'], ["number", "1"], ["literal", "true"]],
        ("yaml", "on-call: yes # c\nurl: http://a#b"): [
            ["key", "on-call"],
            ["literal", "yes"],
            ["comment", "# c"],
            ["key", "url"],
        ],
        ("toml", '[a]\nb.c = "d" # e\nf = 1'): [
            ["key", "b.c"],
            ["string", '"d"'],
            ["comment", "# e"],
            ["key", "f"],
            ["number", "1"],
        ],
        ("css", "a:hover { font-size: 2px; } /* b\nc */ @media"): [
            ["key", "font-size"],
            ["number", "2"],
            ["comment", "/* b"],
            ["comment", "c */"],
            ["function", "@media"],
        ],
        ("html", '<p class="a">it\'s</p><!-- b -->'): [
            ["variable", "<p"],
            ["string", '"a"'],
            ["variable", ">"],
            ["variable", "</p>"],
            ["comment", "<!-- b -->"],
        ],
        ("diff", "--- a\n@@ -1 +1 @@\n-b\n+c\n d"): [
            ["comment", "--- a"],
            ["comment", "@@ -1 +1 @@"],
            ["removed", "-b"],
            ["string", "+c"],
        ],
        ("unheard-of", 'a "b" 2'): [["string", '"b"'], ["number", "2"]],
    }
    for given, wanted in cases.items():
        assert evaluate(tab, source, [*given]) == wanted, given


def test_the_page_needs_nothing_from_elsewhere(context: Any, proxy: Proxy) -> None:
    asked: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    response = page.goto(proxy.address)
    page.wait_for_selector("#empty:not([hidden])")
    assert TOKEN not in page.url, "the token does not stay in the address"
    assert all(url.startswith((proxy.url, "data:")) for url in asked), asked
    assert "script-src 'self'" in response.headers["content-security-policy"]
    assert "unsafe" not in json.dumps(response.headers)
