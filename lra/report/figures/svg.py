"""Matplotlib's SVG without what no viewer shows: it looks alike in a third of the bytes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from io import BytesIO

FONTS = "DejaVu Sans, Verdana, sans-serif"
"""Verdana is as wide as DejaVu Sans, for machines that lack this one."""
_SPACES = {"": "http://www.w3.org/2000/svg", "xlink": "http://www.w3.org/1999/xlink"}
_SVG, _XLINK = (f"{{{address}}}" for address in _SPACES.values())
_TEXT, _GROUP = f"{_SVG}text", f"{_SVG}g"
_NUMBER = re.compile(r"-?\d+\.\d+")
_FONT = re.compile(r" ?font-family: [^;]*;?")


def compact(svg: bytes) -> bytes:
    """Return an SVG with coordinates to a hundredth of a point, and each style written once.

    Args:
        svg: what matplotlib has written.
    """
    root = ET.fromstring(svg)  # noqa: S314 - our own
    for name, address in _SPACES.items():
        ET.register_namespace(name, address)
    for metadata in root.findall(f"{_SVG}metadata"):
        root.remove(metadata)
    used = set(re.findall(r"url\(#([^)]+)\)", svg.decode()))
    used |= {element.get(f"{_XLINK}href", "").lstrip("#") for element in root.iter()}
    classes: dict[str, str] = {}
    for element in root.iter():
        _shorten(element, used)
        if style := _FONT.sub("", element.attrib.pop("style", "")):
            element.set("class", classes.setdefault(style, f"s{len(classes)}"))
    _unwrap(root)
    root.set("font-family", FONTS)
    (rules,) = root.findall(f"{_SVG}defs/{_SVG}style")
    rules.text = "".join([rules.text or "", *(f".{name}{{{s}}}" for s, name in classes.items())])
    written = BytesIO()
    ET.ElementTree(root).write(written, encoding="utf-8", xml_declaration=True)
    return written.getvalue()


def _unwrap(element: ET.Element) -> None:
    """Put what is in groups that say nothing, of which matplotlib writes many, into their place."""
    children: list[ET.Element] = []
    for child in element:
        _unwrap(child)
        children.extend(child if child.tag == _GROUP and not child.attrib else [child])
    element[:] = children


def _shorten(element: ET.Element, used: set[str]) -> None:
    if element.get("id") not in used:
        element.attrib.pop("id", None)
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for name in {"d", "x", "y", "transform"}.intersection(element.keys()):
        words = _NUMBER.sub(_rounded, element.attrib[name]).split()
        element.set(name, " ".join(_implied(words) if name == "d" else words))
    element.tail = None
    if element.tag != _TEXT and not (element.text or "").strip():
        element.text = None


def _implied(words: list[str]) -> list[str]:
    """Leave out of a path each L that pairs of numbers after M or L stand for without it."""
    kept: list[str] = []
    drawing = ""
    for word in words:
        if word == "L" and drawing in ("M", "L"):
            continue
        if word.isalpha():
            drawing = word
        kept.append(word)
    return kept


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
