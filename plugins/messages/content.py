"""Content blocks that carry text, an image or a document, as the parts of a chat message."""

import re
from typing import Any, Final

from plugins.chat.reading import Data, objects, refusal, text_in

SAYABLE: Final = frozenset(("text", "image", "document"))
"""Types of blocks that `parts_of` understands."""

_IMAGE_TYPE: Final = re.compile(r"image/[A-Za-z0-9.+-]+")
_ADDRESS: Final = re.compile(r"https?://\S+", re.IGNORECASE)
_NO_FILES: Final = "there is no files API here; send the content itself"


def parts_of(block: Data, place: str) -> list[Data]:
    """A block as chat content parts, of type `text` and `image_url`.

    Raises:
        InvalidRequest: 400, chat has no words for it.
    """
    match block.get("type"):
        case "text":
            return [{"type": "text", "text": text_in(block, "text", place)}]
        case "image":
            return [{"type": "image_url", "image_url": {"url": _image(block, place)}}]
        case "document":
            return _document(block, place)
        case kind:
            raise refusal(
                place, f"a block of type {kind!r:.64} has no equivalent for workers that only have the chat API"
            )


def _source(block: Data, place: str) -> Data:
    source = block.get("source")
    if source.__class__ is not dict:
        raise refusal(f"{place}.source", "expected an object", "invalid_type")
    return dict(source)


def _image(block: Data, place: str) -> str:
    source, place = _source(block, place), f"{place}.source"
    match source.get("type"):
        case "base64":
            kind = source.get("media_type") or "image/png"
            if kind.__class__ is not str or not _IMAGE_TYPE.fullmatch(kind):
                raise refusal(f"{place}.media_type", "expected the media type of an image")
            return f"data:{kind};base64,{text_in(source, 'data', place, empty=False)}"
        case "url":
            url = text_in(source, "url", place, empty=False)
            if not _ADDRESS.fullmatch(url):
                raise refusal(f"{place}.url", "expected an address that begins with https:// or http://")
            return url
        case "file":
            raise refusal(f"{place}.type", _NO_FILES)
        case kind:
            raise refusal(f"{place}.type", f"an image cannot come as {kind!r:.64}; expected base64 or url")


def _document(block: Data, place: str) -> list[Data]:
    citations = block.get("citations")
    if citations.__class__ is dict and citations.get("enabled"):
        raise refusal(f"{place}.citations", "workers that only have the chat API give no citations")
    source, where = _source(block, place), f"{place}.source"
    heads = [text_in(block, name, place) for name in ("title", "context") if block.get(name) is not None]
    parts = [{"type": "text", "text": head} for head in heads if head]
    match source.get("type"):
        case "text":
            text = text_in(source, "data", where, empty=False)
            return [{"type": "text", "text": "\n\n".join([head for head in heads if head] + [text])}]
        case "content":
            return parts + _nested(source.get("content"), f"{where}.content")
        case "file":
            raise refusal(f"{where}.type", _NO_FILES)
        case "base64" | "url":
            raise refusal(
                f"{where}.type", "workers that only have the chat API read no PDF; send its text or its pages"
            )
        case kind:
            raise refusal(f"{where}.type", f"a document cannot come as {kind!r:.64}; expected text or content")


def _nested(content: Any, place: str) -> list[Data]:
    if content.__class__ is str:
        return [{"type": "text", "text": content}]
    parts: list[Data] = []
    for block, where in objects(content, place):
        if block.get("type") not in ("text", "image"):
            raise refusal(where, "a document is made of blocks of type text and image")
        parts += parts_of(block, where)
    return parts
