"""What a person does with a conversation on the page: edit and send again, rename, save as Markdown, attach files."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from .pages import CHROMIUM, Tab, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`"),
]

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==")


def test_a_message_that_is_edited_goes_on_in_a_branch_and_the_other_is_kept(tab: Tab) -> None:
    for text in ("tree one", "tree two"):
        tab.send(text)
        tab.done()
    first = tab.page.url
    tab.page.hover(".turn.user >> nth=1")
    tab.page.click(".turn.user >> nth=1 >> .edit")
    assert tab.page.input_value(".rewrite .editor") == "tree two"
    tab.page.fill(".rewrite .editor", "tree three")
    tab.page.keyboard.press("Enter")
    tab.wait("text=You said: tree three")
    tab.done()
    assert tab.page.locator(".bubble").all_inner_texts() == ["tree one", "tree three"]
    assert tab.page.url != first
    tab.wait("#conversations >> text=tree one (2)")
    tab.page.goto(first)
    tab.wait("text=You said: tree two")
    assert tab.page.locator(".bubble").all_inner_texts() == ["tree one", "tree two"]


def test_a_branch_and_the_conversation_it_comes_from_lead_to_each_other(tab: Tab) -> None:
    """By buttons that a screen reader finds under the title, on narrow pages too; the field then has the focus."""
    tab.page.set_viewport_size({"width": 320, "height": 640})
    tab.send("root one")
    tab.done()
    first = tab.page.url
    assert not tab.page.is_visible("#branches")
    tab.page.focus(".edit")
    tab.page.keyboard.press("Enter")
    tab.page.fill(".rewrite .editor", "root two")
    tab.page.keyboard.press("Enter")
    tab.wait("text=You said: root two")
    tab.done()
    second = tab.page.url
    navigation = tab.page.get_by_role("navigation", name="Branches")
    navigation.get_by_role("button", name="Branched from \u201croot one\u201d").click()
    tab.wait("text=You said: root one")
    assert tab.page.url == first
    assert tab.page.evaluate("document.activeElement.id") == "input"
    tab.page.reload()
    navigation.get_by_role("button", name="Branch \u201croot two\u201d").click()
    tab.wait("text=You said: root two")
    assert tab.page.url == second
    tab.page.keyboard.press("Alt+n")
    tab.wait("#branches", state="hidden")


def test_an_edit_that_is_not_sent_changes_nothing(tab: Tab) -> None:
    tab.send("as it was")
    tab.done()
    tab.page.focus(".edit")
    tab.page.keyboard.press("Enter")
    tab.page.fill(".rewrite .editor", "other")
    tab.page.keyboard.press("Escape")
    assert tab.page.locator(".bubble").all_inner_texts() == ["as it was"]
    assert tab.page.evaluate("document.activeElement.className") == "quiet edit"


def test_a_conversation_is_renamed_in_the_list(tab: Tab) -> None:
    tab.send("a long name")
    tab.done()
    item = tab.page.locator("#conversations li", has_text="a long name").first
    item.hover()
    item.locator("button.quiet").first.click()
    tab.page.fill("#conversations input", "<b>short</b>")
    tab.page.click("#conversations button:text-is('Save')")
    until(lambda: tab.text("#title") == "<b>short</b>", tab.page)
    tab.page.reload()
    tab.wait("text=You said: a long name")
    until(lambda: tab.text("#title") == "<b>short</b>", tab.page)


def test_a_conversation_is_saved_as_markdown(tab: Tab) -> None:
    tab.send("raise it")
    tab.page.click(".question .primary")
    tab.done()
    with tab.page.expect_download() as download:
        tab.page.click("#export")
    assert download.value.suggested_filename == "raise it.md"
    written = Path(download.value.path()).read_text("utf-8")
    begin = "# raise it\n\n## You\n\nraise it\n\n## Assistant\n\nIt **may** fail:\n\n1. `one`\n2. two\n\n```python\n"
    assert written.startswith(begin)
    assert "```\n\n```text\nbefore\n" in written
    assert written.count("## ") == 2 and "\n\nThe output was: before\n" in written


def test_an_answer_names_its_model_its_time_and_its_tokens(tab: Tab) -> None:
    """Later, too, and of every answer."""
    for text in ("late", "slow"):
        tab.send(text)
        tab.done()
    for _ in range(2):
        for note in tab.page.locator(".turn.assistant > footer .note").all_inner_texts():
            model, time, tokens = note.split(" \u00b7 ")
            assert (model, float(time.removesuffix(" s")) >= 2.4, "tokens in" in tokens) == ("m", True, True), note
        tab.reopen()


def drop(tab: Tab, name: str, kind: str, content: bytes, event: str = "drop") -> None:
    """What a browser does when files are dropped on the page, or pasted."""
    tab.page.evaluate(
        """([name, kind, content, event]) => {
          const data = new DataTransfer();
          data.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name, { type: kind }));
          const options = { bubbles: true, cancelable: true };
          const made = event === "paste" ? new ClipboardEvent("paste", { ...options, clipboardData: data }) : new DragEvent("drop", { ...options, dataTransfer: data });
          document.getElementById("input").dispatchEvent(made);
        }""",
        [name, kind, base64.b64encode(content).decode(), event],
    )


def test_pictures_and_text_files_are_dropped_and_pasted(tab: Tab) -> None:
    drop(tab, "dot.png", "image/png", PIXEL)
    tab.wait("#attached >> text=dot.png")
    drop(tab, "notes.md", "text/markdown", b"a\n````\nb", "paste")
    tab.wait("#attached >> text=notes.md")
    drop(tab, "gone.txt", "text/plain", b"x")
    tab.page.click("#attached [aria-label='Remove gone.txt']")
    with tab.page.expect_request(lambda one: one.url.endswith("/runs")) as sent:
        tab.send("hello files")
    texts = [message["content"] for message in sent.value.post_data_json["input"]]
    assert texts[1] == "notes.md:\n\n`````md\na\n````\nb\n`````"
    tab.done()
    assert tab.count("#attached .chip") == 0
    assert tab.page.locator(".bubble").all_inner_texts() == ["notes.md", "hello files"]
    tab.page.click(".bubble summary")
    tab.wait(".bubble .code >> text=b")  # it is laid out with the next frame
    assert tab.text(".bubble .code").split() == ["a", "````", "b"]
    assert tab.text("#title") == "hello files"
    picture = tab.page.locator(".turn.user .picture img")
    assert picture.evaluate("picture => picture.decode().then(() => picture.naturalWidth)") == 1
    tab.reopen()
    assert tab.count(".turn.user .picture img") == 1 and tab.count(".bubble") == 2
    # A text that is edited is sent with the files that it was sent with.
    tab.page.locator(".edit").last.focus()
    tab.page.keyboard.press("Enter")
    tab.page.fill(".rewrite .editor", "hello again")
    tab.page.keyboard.press("Enter")
    tab.wait("text=You said: hello again")
    tab.done()
    assert tab.count(".turn.user .picture img") == 1
    assert tab.page.locator(".bubble").all_inner_texts() == ["notes.md", "hello again"]


def test_a_file_that_is_neither_text_nor_picture_is_refused_in_words(tab: Tab) -> None:
    drop(tab, "song.mp3", "audio/mpeg", b"\xff\xfb\x00")
    tab.wait("#problem >> text=song.mp3 is neither a text nor a picture")
    assert tab.count("#attached .chip") == 0


def test_a_model_that_takes_no_pictures_is_named_as_such(tab: Tab, monkeypatch: Any) -> None:
    monkeypatch.setattr("tests.browser.pages.TAKES_IMAGES", False)
    drop(tab, "dot.png", "image/png", PIXEL)
    tab.wait("#attached .chip")
    tab.send("what is this?")
    tab.done()
    assert "The model takes no pictures" in tab.text(".turn.assistant")
