"""What comes back from a process that may have been taken over."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from node.images.decode import BadImage, Flaw, NotAnImage
from node.images.pixels import (
    NotBase64,
    most_answer_bytes,
    read_image,
    read_order,
    write_failure,
    write_image,
    write_order_head,
)

SIDE = 16


def test_an_order_comes_as_it_was_sent() -> None:
    assert read_order(write_order_head(2048) + b"file") == (2048, b"file")
    assert read_order(write_order_head(9, is_base64=True) + b"ZmlsZQ==") == (9, b"file")


@pytest.mark.parametrize(
    "text",
    ["Z", "ZmlsZQ", "ZmlsZQ=", "Zmls\nZQ==", "ZmlsZQ==ZmlsZQ==", "ZmlsZQ== ", "Zm_s", "=", "Zm?s", "ZmlsZQ==="],
)
def test_what_is_not_quite_base64_is_none(text: str) -> None:
    with pytest.raises(NotBase64):
        read_order(write_order_head(9, is_base64=True) + text.encode())


def test_an_image_comes_as_it_was_sent() -> None:
    image = Image.effect_noise((SIDE, 3), 90).convert("RGB")
    answer = write_image(image)
    assert read_image(answer, SIDE).tobytes() == image.tobytes()
    assert read_image(answer, SIDE).size == image.size
    assert len(write_image(Image.new("RGB", (SIDE, SIDE)))) == most_answer_bytes(SIDE)


@pytest.mark.parametrize("flaw", Flaw)
def test_each_flaw_comes_as_it_was_sent(flaw: Flaw) -> None:
    with pytest.raises(BadImage) as caught:
        read_image(write_failure(BadImage(flaw)), SIDE)
    assert caught.value.flaw is flaw


def test_not_an_image_comes_as_it_was_sent() -> None:
    with pytest.raises(NotAnImage):
        read_image(write_failure(NotAnImage()), SIDE)


def test_not_base64_comes_as_it_was_sent() -> None:
    with pytest.raises(NotBase64):
        read_image(write_failure(NotBase64()), SIDE)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0" * 8,
        struct.pack("<BII", 0, SIDE, SIDE),
        struct.pack("<BII", 0, SIDE + 1, 1) + bytes(3 * (SIDE + 1)),
        struct.pack("<BII", 0, 0, 5),
        struct.pack("<BII", 0, 1, 1) + bytes(4),
        struct.pack("<BII", 0, 0xFFFFFFFF, 0xFFFFFFFF) + bytes(3),
        struct.pack("<BII", 200, 0, 0),
    ],
)
def test_an_answer_that_lies_is_a_damaged_image(answer: bytes) -> None:
    with pytest.raises(BadImage, match="damaged"):
        read_image(answer, SIDE)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda rest: struct.pack("<BII", 0, 2, 3) + rest))
def test_no_answer_does_more_than_fail(answer: bytes) -> None:
    try:
        image = read_image(answer, SIDE)
    except (NotBase64, NotAnImage, BadImage):
        return
    assert len(answer) == 9 + 3 * image.width * image.height
