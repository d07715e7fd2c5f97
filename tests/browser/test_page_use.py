"""How the chat page behaves in use: scrolling, focus, keys, what could not be sent, edits, and text that is made to harm."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import pytest

from .pages import CHROMIUM, TOKEN, Proxy, Tab, until
from .test_page import evaluate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`"),
]

FOCUS = "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"


def test_whoever_scrolls_up_a_little_stays_there_and_newest_leads_back(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 500, "height": 400})
    tab.send("slow please")
    tab.wait("text=word60")
    tab.page.mouse.move(250, 200)
    tab.page.mouse.wheel(0, -12)
    tab.wait("#to-end")
    place = "document.getElementById('scroller').scrollTop"
    before = tab.page.evaluate(place)
    tab.wait("text=word90", state="attached")
    assert tab.page.evaluate(place) == before
    tab.page.click("#to-end")
    tab.wait("text=word110")
    assert not tab.page.is_visible("#to-end")
    assert tab.page.evaluate("document.activeElement.id") == "input"
    # Another size is no scrolling of a person's.
    for width, height in ((360, 700), (1200, 300), (400, 380)):
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.wait_for_timeout(50)
    tab.done()
    until(
        lambda: tab.page.evaluate("scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop") <= 1, tab.page
    )
    assert not tab.page.is_visible("#to-end")


def test_who_is_at_the_end_stays_there_when_a_question_is_answered(tab: Tab) -> None:
    """It goes, and makes the page shorter for a moment. Its button, or its field, may have had the focus."""
    tab.page.set_viewport_size({"width": 500, "height": 400})
    for keys in (["Alt+a"], ["Tab", "Enter"]):
        tab.send("two calls")
        tab.wait(".question")
        if keys != ["Alt+a"]:
            tab.page.click(".question button:text-is('Decline')")
        tab.page.keyboard.press(keys[0])
        for key in keys[1:]:
            tab.page.keyboard.press(key)
        tab.done()
        until(
            lambda: tab.page.evaluate("scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop") <= 1,
            tab.page,
        )
        assert not tab.page.is_visible("#to-end")


def test_a_new_chat_on_a_small_page_is_seen_from_its_beginning(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 320, "height": 500})
    tab.page.reload()
    tab.wait("#empty:not([hidden])")
    tab.page.wait_for_timeout(100)
    assert tab.page.evaluate("scroller.scrollTop") == 0
    assert tab.page.evaluate("scroller.scrollHeight > scroller.clientHeight")


def refuse(tab: Tab, status: int, code: str, times: int = 1) -> None:
    """Make the next runs be refused, as the server would."""
    body = f'{{"type": "urn:streamkit:error:{code}", "title": "No.", "status": {status}}}'
    tab.page.route(
        re.compile("/runs$"),
        lambda route: route.fulfill(status=status, body=body, content_type="application/problem+json"),
        times=times,
    )


def test_what_could_not_be_sent_is_not_lost_nor_is_the_turn_before_it(tab: Tab) -> None:
    tab.send("first")
    tab.done()
    refuse(tab, 413, "body-too-large")
    tab.send("second")
    tab.wait(".turn .problem >> text=more than the server takes")
    assert tab.count(".turn.user") == 2
    tab.page.click(".retry")
    tab.wait("text=You said: second")
    tab.done()
    assert "You said: first" in tab.text()
    assert tab.count(".turn.user") == 2 and tab.count(".problem:visible") == 0
    refuse(tab, 409, "conversation-busy")
    tab.send("third")
    tab.wait("#problem >> text=An answer to this conversation goes on")
    assert tab.page.input_value("#input") == "third"
    assert tab.count(".turn.user") == 2
    tab.page.keyboard.press("Enter")
    tab.wait("text=You said: third")
    tab.done()
    # The cookie is over in mid-use.
    tab.page.context.clear_cookies()
    tab.send("fourth")
    tab.wait("#login[open]")
    tab.page.fill("#token", TOKEN)
    tab.page.keyboard.press("Enter")
    tab.wait("text=You said: third")
    assert tab.page.input_value("#input") == "fourth"


def test_a_message_that_finds_no_server_can_be_taken_back(tab: Tab, proxy: Proxy) -> None:
    tab.send("first")
    tab.done()
    with proxy.down():
        tab.send("into the void")
        tab.wait("#connection:not(:empty)")
        assert "Connection lost" in tab.text("#connection")
        tab.page.keyboard.press("Escape")
        until(lambda: tab.page.input_value("#input") == "into the void", tab.page)
        assert tab.count(".turn.user") == 1 and tab.page.is_visible("#send")
    tab.page.reload()
    tab.wait("text=You said: first")
    until(lambda: tab.page.input_value("#input") == "into the void", tab.page)  # a reload keeps what is written
    tab.page.focus("#input")
    tab.page.keyboard.press("Enter")
    tab.wait("text=You said: into the void")


def test_what_a_tool_is_called_with_is_edited_before_it_is_called(tab: Tab) -> None:
    tab.send("pay her")
    tab.page.click(".question >> text=Edit")
    assert tab.page.input_value(".editor") == '{\n  "to": "Ann",\n  "amount": 20\n}'
    for wrong, fault in (("{", "This is not JSON"), ("[1]", "a JSON object")):
        tab.page.fill(".editor", wrong)
        tab.page.keyboard.press("Control+Enter")
        tab.wait(f".question .problem >> text={fault}")
    tab.page.fill(".editor", '{"to": "Bob", "amount": 3}')
    tab.page.keyboard.press("Control+Enter")
    tab.done()
    assert "Bob has 3" in tab.text(".turn.assistant")
    assert tab.page.evaluate(FOCUS) == "SUMMARY"
    for _ in range(2):
        assert "Bob, 3" in tab.page.text_content(".fold.tool summary")
        assert "You edited this before it ran." in tab.text(".turn.assistant")
        tab.reopen()


def test_long_code_shows_the_line_that_runs_and_that_it_was_stopped(tab: Tab) -> None:
    tab.send("long code")
    tab.wait(".question")
    tab.page.click(".question .primary")
    tab.wait(".line.active")
    inside = """() => {
      const [line, box] = [document.querySelector(".line.active"), document.querySelector(".card .code")].map((one) => one.getBoundingClientRect());
      return box.height < 600 && line.top >= box.top && line.bottom <= box.bottom;
    }"""
    until(lambda: "while" in tab.text(".card .code") and tab.page.evaluate(inside), tab.page)
    tab.wait(".card .console")
    tab.page.click("#stop")
    tab.done()
    assert tab.text(".card .state") == "Stopped"
    assert tab.page.evaluate("document.activeElement.id") == "send"
    assert "Stopped" in tab.text(".turn footer")
    # Stopped before it printed anything.
    tab.send("silent code")
    tab.wait(".turn:last-child .question")
    tab.page.keyboard.press("Alt+a")
    tab.wait(".turn:last-child .line.active")
    tab.page.keyboard.press("Escape")
    tab.done()
    assert tab.text(".turn:last-child .card .state") == "Stopped"


def test_the_list_changes_without_disturbing_who_deletes_from_it(tab: Tab) -> None:
    for name in ("alpha one", "beta two"):
        tab.page.keyboard.press("Alt+n")
        tab.send(name)
        tab.done()
    item = tab.page.locator("#conversations li", has_text="alpha one").first
    item.locator(".open").focus()
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.ariaLabel") == "Delete \u201calpha one\u201d for good"
    other = tab.another()
    other.send("gamma from another tab")
    other.done()
    tab.wait("#log >> text=gamma from another tab")
    assert tab.page.evaluate("document.activeElement.innerText") == "Delete"
    tab.page.keyboard.press("Escape")
    assert tab.page.evaluate("document.activeElement.ariaLabel") == "Delete \u201calpha one\u201d"
    tab.page.keyboard.press("Enter")
    tab.page.keyboard.press("Enter")
    until(lambda: tab.count("#conversations .danger") == 0, tab.page)
    assert "alpha one" not in tab.text("#conversations")
    assert tab.page.evaluate("document.activeElement.className") == "open"
    other.page.close()
    assert other.faults == []


def test_an_older_list_that_comes_late_shows_nothing_that_was_deleted(tab: Tab) -> None:
    """As it comes when another tab changes something just before a conversation is deleted."""
    tab.send("to be deleted")
    tab.done()
    late: list[tuple[Any, Any]] = []

    def hold(route: Any) -> None:
        if late:
            route.continue_()
        else:
            late.append((route, route.fetch()))

    tab.page.route(re.compile(r"/conversations\?"), hold)
    tab.page.evaluate("const channel = new BroadcastChannel('streamkit'); channel.postMessage({}); channel.close()")
    until(lambda: bool(late), tab.page)
    item = tab.page.locator("#conversations li", has_text="to be deleted").first
    item.locator("[title^=Delete]").click()
    tab.page.click("#conversations .danger")
    until(lambda: not tab.count("#conversations .danger"), tab.page)
    assert "to be deleted" not in tab.text("#conversations")
    tab.page.wait_for_timeout(500)  # for what the page asks after a deletion
    [(route, response)] = late
    with tab.page.expect_response(re.compile(r"/conversations\?")):
        route.fulfill(response=response)
    tab.page.wait_for_timeout(200)
    tab.page.unroute_all()
    assert "to be deleted" not in tab.text("#conversations")


def test_keys_belong_to_who_composes_and_the_skip_link_stays_in_the_conversation(tab: Tab) -> None:
    tab.send("slower please")
    tab.wait("text=word3")
    press = """([key, isComposing, keyCode]) => document.getElementById("input")
      .dispatchEvent(new KeyboardEvent("keydown", { key, isComposing, keyCode, bubbles: true, cancelable: true }))"""
    assert tab.page.evaluate(press, ["Escape", True, 27])
    assert tab.page.get_attribute("#stop", "aria-label") == "Stop", "it cancels what is composed, not the answer"
    tab.page.keyboard.press("Escape")
    tab.done()
    tab.page.fill("#input", "half a word")
    for composing in (["Enter", True, 13], ["Enter", False, 229]):
        assert tab.page.evaluate(press, composing), "it was not taken for sending"
    assert tab.page.input_value("#input") == "half a word"
    tab.page.focus(".skip")
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "input"
    assert "word3" in tab.text() and "#c=" in tab.page.url


def test_right_to_left_text_is_shown_so_and_paper_has_all_of_it(tab: Tab) -> None:
    tab.send("\u05e9\u05dc world")
    tab.done()
    direction = "getComputedStyle(document.querySelector('.turn.user .bubble')).direction"
    assert tab.page.evaluate(direction) == "rtl"
    source = """({ markdown }, text) => {
      const root = document.createElement("div");
      new markdown.MarkdownView(root).update(text);
      return [...root.children].map((one) => `${one.tagName} ${one.dir}`);
    }"""
    text = "# \u05e9\u05dc\n\n- \u0647\u0630\u0627\n- b\n\n1. *\u0639\u0646*\n\nplain \u05e9\u05dc\n\n> \u0647\u0630\u0627\n\n|\u0647\u0630\u0627|b|\n|-|-|\n\n```\n\u0647\u0630\u0627\n```"
    assert evaluate(tab, source, text) == ["H3 rtl", "UL rtl", "OL rtl", "P ", "BLOCKQUOTE rtl", "DIV rtl", "DIV "]
    tab.page.emulate_media(media="print")
    assert not tab.page.is_visible("#side") and not tab.page.is_visible("#input")
    assert tab.page.evaluate("getComputedStyle(scroller).overflowY") == "visible"


def test_fingers_hit_every_control(browser: Any, proxy: Proxy) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    tab = Tab(context, proxy.address)
    tab.send("draw")
    tab.wait(".question")
    small = """() => [...document.querySelectorAll("button, summary")].filter((one) => one.checkVisibility({ visibilityProperty: true }))
      .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()]).filter(([, { width, height }]) => width < 43.9 || height < 43.9).map(([html]) => html)"""
    assert tab.page.evaluate(small) == []
    tab.page.click("#open-side")
    tab.wait("#conversations .quiet")
    assert tab.page.evaluate(small) == []
    assert tab.page.evaluate("document.querySelector('main').inert")
    tab.page.keyboard.press("Escape")
    assert tab.page.evaluate("document.activeElement.id") == "open-side"
    tab.page.keyboard.press("Alt+x")
    tab.done()
    assert tab.faults == []
    context.close()


# -- pages of other people

PAGES = {
    "chat": """
      class Page extends EventHandler {
        on_text_delta(delta, snapshot) { if (snapshot.role === "assistant") show(delta.value); }
        on_confirmation(confirmation) { ask.hidden = false; ask.onclick = () => confirmation.approve(); }
        on_end() { show("[end]"); }
      }
      await connect({ url: "/", token: TOKEN }).run("draw it", { conversation: "of-a-small-page", handler: new Page() }).untilDone();""",
    "viewer": """
      const { run } = await connect({ url: "/", token: TOKEN }).getMessages("of-a-small-page");
      const onConnection = (state) => (document.title += `${state} `);
      const stream = connect({ url: "/", token: TOKEN, onConnection }).read(run.id);
      for await (const event of stream) if (event.type === "code_done") show(event.message.content);
      show(stream.messages.filter((message) => message.type === "console").map((message) => message.content).join(""));
      show((await stream.getFinalText()) + stream.status);""",
    "device": """
      const client = connect({ url: "/", token: TOKEN });
      const { runs } = await client.listRuns({ conversation: "of-a-small-page" });
      const stream = client.read(runs[0].id);
      for await (const event of stream) {
        if (event.type === "confirmation_created") show((await stream.approve(event.confirmation.id, "print('edited elsewhere')")).status);
        if (event.type === "confirmation_done") break;
      }
      await stream.approve([...stream.confirmations][0].id).catch((error) => show(error.code));
      stream.close();""",
}


def fulfil(body: str, route: Any) -> None:
    route.fulfill(body=body, content_type="text/html")


def test_small_pages_of_other_people_read_and_answer_a_run(browser: Any, proxy: Proxy) -> None:
    """A chat, a viewer whose connection is cut, and a second device that edits and approves; each without a cookie."""
    pages: dict[str, Any] = {}
    faults: list[str] = []
    context = browser.new_context()
    for name, source in PAGES.items():
        page = pages[name] = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        script = f"""<button id="ask" hidden>Yes</button><main></main><script type="module">
          import {{ EventHandler, connect }} from "/streamkit.js";
          const TOKEN = {json.dumps(TOKEN)};
          const show = (text) => document.querySelector("main").append(text, " ");
          {source}
          document.body.id = "done";</script>"""
        page.route("**/small.html", functools.partial(fulfil, script))
        page.goto(f"{proxy.url}/small.html")
        if name == "chat":
            page.wait_for_selector("#ask:not([hidden])")
        elif name == "viewer":
            page.wait_for_selector("main:has-text('number')")
            proxy.cut()
    shown = {}
    for name, page in pages.items():
        page.wait_for_selector("#done")
        shown[name] = page.inner_text("main")
    assert faults == []
    assert shown["device"].split() == ["approved", "already-answered"]
    chat = shown["chat"].replace(" ", "")
    assert chat.startswith("Iwill**draw**.") and chat.endswith("editedelsewhere[end]")
    assert "display(Image(" in shown["viewer"] and "edited elsewhere\n" in (pages["viewer"].text_content("main") or "")
    assert shown["viewer"].endswith("completed") and "waiting" in pages["viewer"].title()
    context.close()


# -- texts that are made to harm

BULKY = {
    "a heading with many spaces": "'# a' + ' '.repeat(n) + 'b'",
    "a table's line with many spaces": "'|a|b|\\n|-' + ' '.repeat(n) + 'x|'",
    "backticks": "'`'.repeat(n) + ' `'",
    "backticks of each length": "Array.from({ length: Math.sqrt(2 * n) | 0 }, (_, i) => '`'.repeat(i + 1) + 'a').join('')",
    "spaces before no end of a line": "'a' + ' '.repeat(n) + 'b'",
    "a link with many spaces": "'[a](x' + ' '.repeat(n) + '\"'",
    "links in brackets": "'['.repeat(n) + '[a](http://x)'.repeat(n / 13 | 0)",
    "brackets": "'['.repeat(n) + ']'.repeat(n)",
    "emphasis that nothing closes": "'*a '.repeat(n / 3 | 0)",
    "emphasis of all kinds": "'*_a~~'.repeat(n / 6 | 0)",
    "quotes": "'>'.repeat(n)",
    "lists in lists": "'- '.repeat(n / 2 | 0) + 'x'",
    "lines of one item": "'- a\\n' + 'b\\n'.repeat(n / 2 | 0)",
    "a wide table": "'|a'.repeat(n / 4 | 0) + '\\n' + '|-'.repeat(n / 4 | 0)",
    "a fence of many marks": "'~'.repeat(n) + '\\na'",
    "code in one line": "'```json\\n' + '\"a\":1,'.repeat(n / 6 | 0)",
    "entities": "'&a'.repeat(n / 2 | 0)",
    "entities with an end": "'&amp;'.repeat(n / 5 | 0)",
    "elements without an end": "'<b>a'.repeat(n / 4 | 0)",
    "ends without an element": "'</b>'.repeat(n / 4 | 0)",
    "comments without an end": "'<!--'.repeat(n / 4 | 0)",
    "dollars": "'$a '.repeat(n / 3 | 0)",
    "formulas without an end": "'\\\\( '.repeat(n / 3 | 0)",
    "definitions": "'[a]\\n\\n' + '[a]: http://b\\n'.repeat(n / 14 | 0)",
    "labels without an end": "'[a]: '.repeat(n / 5 | 0) + '\\n\\n[a]: b'",
    "notes": "Array.from({ length: n / 20 | 0 }, (_, i) => `[^${i}]`).join(' ') + '\\n\\n' + Array.from({ length: n / 20 | 0 }, (_, i) => `[^${i}]: x`).join('\\n')",
    "details in details": "'<details>\\n'.repeat(n / 10 | 0)",
    "tildes": "'~a~~'.repeat(n / 4 | 0)",
}


def test_no_text_takes_long_to_show_however_it_is_made(tab: Tab) -> None:
    """130,000 characters each: some took minutes, or were too many for one call. Its layout is not in it."""
    texts = ", ".join(f"{json.dumps(name)}: {expression}" for name, expression in BULKY.items())
    source = """({ markdown, console: { ConsoleView } }, n) => {
      const faults = [];
      for (const [name, text] of Object.entries({ TEXTS })) {
        const begun = performance.now();
        const view = new markdown.MarkdownView(document.createElement("div"));
        view.update(text);
        view.complete();
        if (performance.now() - begun > 15_000) faults.push(name);
      }
      const view = new ConsoleView();
      const begun = performance.now();
      view.update("a line of text\\n".repeat(n) + "\\x1b[31mx\\x1b[32my".repeat(n / 2));
      if (performance.now() - begun > 15_000) faults.push("a console");
      return [faults, view.element.childElementCount, view.element.textContent.slice(0, 50)];
    }"""

    faults, lines, first = evaluate(tab, source.replace("TEXTS", texts), 130_000)
    assert faults == []
    assert lines == 5001 and first.startswith("125,001 earlier lines are not shown\n")


def test_code_shows_what_nobody_would_see(tab: Tab) -> None:
    """What turns the direction of text, and a carriage return, which ends a line for Python and not for the eye."""
    source = """({ highlight: { CodeView } }, [code, text]) => {
      const view = new CodeView("python");
      view.update(code);
      return [view.code.textContent, view.text === code, [...view.code.querySelectorAll(".unseen")].map((one) => one.textContent)];
    }"""
    code = "access = 'user\u202e \u2066# admin\u2069 \u2066'\r\nx = 1 # harmless\rimport os\nprint('ok \U0001f469\u200d\U0001f467')"
    shown, is_whole, signs = evaluate(tab, source, [code, ""])
    assert signs == ["U+202E", "U+2066", "U+2069", "U+2066", "U+000D"]
    assert is_whole and "harmlessU+000Dimport os" in shown and "\U0001f469\u200d\U0001f467" in shown
