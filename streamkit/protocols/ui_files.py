"""Files in user interfaces: a URL, which may hold the bytes, and a media type."""

from __future__ import annotations

from ..messages import AudioMessage, FileMessage, ImageMessage, Message

__all__ = ["file_fields", "file_url"]

# By the ending of a URL's path. The table of the machine would be another on each.
_MEDIA_TYPES = {
    **{ending: f"image/{ending}" for ending in ("png", "gif", "webp", "avif", "bmp")},
    **dict.fromkeys(("jpg", "jpeg"), "image/jpeg"),
    "svg": "image/svg+xml",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "json": "application/json",
    "csv": "text/csv",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
}


def file_url(message: Message) -> tuple[str, str] | None:
    """Return the URL and the media type of a file, an image or audio; None if a browser cannot get it."""
    format = message.format or ""
    kind = "image" if isinstance(message, ImageMessage) else None
    if isinstance(message, AudioMessage):
        media_type = f"audio/{format or '*'}"
        return f"data:{media_type};base64,{message.content}", media_type
    if format.startswith("base64."):
        media_type = f"{kind or 'application'}/{format.removeprefix('base64.')}"
        return f"data:{media_type};base64,{message.content}", media_type
    if format != "url":
        return None
    ending = message.content.partition("?")[0].rpartition(".")[2].lower()
    unknown = f"{kind}/*" if kind else "application/octet-stream"
    return message.content, _MEDIA_TYPES.get(ending, unknown)


def file_fields(url: str, media_type: str) -> tuple[type[Message], str, str]:
    """Return the class, format and content of the message for a file with this URL."""
    kind, _, subtype = media_type.partition("/")
    head, comma, data = url.partition(",")
    is_base64 = bool(comma) and head.startswith("data:") and head.endswith(";base64")
    if kind == "audio" and is_base64:
        return AudioMessage, subtype if subtype != "*" else "", data
    message_class = ImageMessage if kind == "image" else FileMessage
    return (message_class, f"base64.{subtype}", data) if is_base64 else (message_class, "url", url)
