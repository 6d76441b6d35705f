"""Contents of messages, of all wires: a string, or a list of blocks, as parts of a turn."""

from __future__ import annotations

from collections.abc import Iterator

from molt_plugin_gateway.exchange import Image, Turn
from molt_plugin_gateway.wires.node import Node

Parts = tuple[str | Image, ...]


def read_parts(content: Node, *, inner: bool = False) -> Parts:
    """Empty texts are left out. Raises BadRequest for what a chat template can't show.

    Args:
        inner: inside a document or search result, where no other one may stand.
    """
    if content.value is None or isinstance(content.value, str):
        return tuple(text for text in [content.text("")] if text)
    return tuple(part for block in content.items() for part in read_block(block, inner=inner) if part)


def read_turn(role: Node, content: Node) -> Turn:
    """What is neither the assistant's nor a tool's, on OpenAI's wires."""
    match word := role.text():
        case "user":
            return Turn(role="user", content=read_parts(content))
        case "system" | "developer":
            return Turn(role="system", content=read_parts(content))
        case _:
            raise role.problem(f"role {word!r} is not known")


def read_block(block: Node, *, inner: bool = False) -> Iterator[str | Image]:
    match kind := block["type"].text():
        case "text" | "input_text" | "output_text" | "reasoning_text" | "summary_text":
            yield block["text"].text()
        case "refusal":
            yield block["refusal"].text()
        case "image_url":  # Chat Completions
            url = block["image_url"]
            yield _image(url if isinstance(url.value, str) else url["url"])
        case "input_image":  # Responses
            yield _image(block["image_url"])
        case "image":  # Messages
            yield _source_image(block["source"])
        case "document" if not inner:
            yield from _document(block)
        case "search_result" if not inner:
            yield f"{block['title'].text('')}\n{block['source'].text('')}\n"
            yield from read_parts(block["content"], inner=True)
        case "tool_reference":
            yield f"Tool {block['tool_name'].name()} is available now.\n"
        case _:
            raise block["type"].problem(f"content of type {kind!r} is not supported")


def _image(url: Node) -> Image:
    text = url.text()
    if not text.startswith(("http://", "https://", "data:image/")):
        raise url.problem("must be an http(s) URL or a data URL of an image")
    return Image(url=text)


def _source_image(source: Node) -> Image:
    match kind := source["type"].text():
        case "url":
            return _image(source["url"])
        case "base64":
            return _image(
                Node(f"data:{source['media_type'].text()};base64,{source['data'].text()}", source.path)
            )
        case _:
            raise source["type"].problem(
                f"images of source type {kind!r} are not kept here; send them in the request"
            )


def _document(block: Node) -> Iterator[str | Image]:
    source = block["source"]
    if title := block["title"].text(""):
        yield f"{title}\n"
    match kind := source["type"].text():
        case "text":
            yield source["data"].text()
        case "content":
            yield from read_parts(source["content"], inner=True)
        case _:
            raise source["type"].problem(f"documents of source type {kind!r} are not supported; send text")
