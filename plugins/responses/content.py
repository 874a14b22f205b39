"""Parts of an input item's content as the parts of a chat message."""

from typing import Any, Final

from plugins.chat.reading import Data, objects, refusal, text_in

_TEXTS: Final = frozenset(("input_text", "output_text", "text"))


def parts_of(content: Any, place: str) -> list[Data]:
    """A string or parts, as chat content parts of type `text` and `image_url`.

    Raises:
        InvalidRequest: 400, chat has no words for one of them.
    """
    if content.__class__ is str:
        return [{"type": "text", "text": content}]
    return [_part(part, where) for part, where in objects(content, place)]


def plain(parts: list[Data], gap: str, place: str) -> str:
    """The texts of parts that have to be texts.

    Raises:
        InvalidRequest: 400, there is an image among them.
    """
    if any(part["type"] != "text" for part in parts):
        raise refusal(place, "only text can stand here for workers that only have the chat API")
    return gap.join(part["text"] for part in parts)


def _part(part: Data, place: str) -> Data:
    kind = part.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": text_in(part, "text", place)}
    if kind == "refusal":
        return {"type": "text", "text": text_in(part, "refusal", place)}
    if kind == "input_image":
        if part.get("image_url") is None:
            raise refusal(place, "there is no files API here; send the image as a URL or a data URL")
        image: Data = {"url": text_in(part, "image_url", place, empty=False)}
        if not image["url"].lower().startswith(("https://", "http://", "data:image/")):
            raise refusal(f"{place}.image_url", "expected an address on the web or a data URL of an image")
        if part.get("detail") is not None:
            image["detail"] = text_in(part, "detail", place)
        return {"type": "image_url", "image_url": image}
    raise refusal(place, f"a part of type {kind!r:.64} has no equivalent for workers that only have the chat API")
