"""The tokenizer: whole words with and without the space before them, numbers, and every byte.

Decides the pieces and their ids. Must not know the network.
"""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from tests.models.tiny.words import CITIES, LAST_NUMBER, NAMES, PARAMETERS, TOOLS, WORDS

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
THINK, END_OF_THINKING = "<think>", "</think>"
SPECIAL = (PAD, START, END, "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
MARKERS = (THINK, END_OF_THINKING, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
PIECES = r" ?[\p{L}_]+| ?\d+| ?[^\s\p{L}\p{N}_]+|\s+(?!\S)|\s"
SPACE, NEWLINE = "\u0120", "\u010a"
"""As the alphabet of byte-level tokenizers spells them."""
_FREQUENT = """
    ", ": "], "]}}} "}, "}}, "}}}}} .", ."}, ."}}, ."}}}}} </ Add Answer Be Call Count Error Get Hello Hi KEY
    Keep NAME Read Say Search Step The Think This Use Wait What You additionalProperties assistant description
    function image integer object parameter parameters properties reminder required string system tools type
    user {" }}} $$ $$$ ~" ~< ~</ ~Anthropic ~How ~I ~JSON ~VALUE ~[" ~[], ~[]}}} ~about ~an ~and ~answered
    ~answers ~are ~as ~assistant ~at ~brief ~by ~can ~color ~colors ~colour ~colours ~current ~do ~ever
    ~failed ~false ~file ~follows ~for ~hard ~has ~help ~helpful ~in ~kind ~let ~look ~made ~makes ~maÃ±ana
    ~me ~model ~more ~need ~not ~numbers ~object ~of ~once ~picture ~result ~results ~say ~sense ~something
    ~the ~then ~these ~think ~this ~time ~understand ~use ~user ~wants ~weather ~web ~with ~your ~{" ~{},
    ~{}}}} ~æĹ¥æľ¬
    """
"""What else is frequent, frozen so that a change of the tasks keeps the ids; ~ is a space, $ a newline."""


def build_tokenizer() -> Tokenizer:
    """Always the same: the pieces are all listed."""
    ids: dict[str, int] = {}
    for piece in [*sorted(pre_tokenizers.ByteLevel.alphabet()), *_list_pieces()]:
        ids.setdefault(piece, len(ids))
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = _splitter()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in MARKERS])
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Of a token that is there."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise KeyError(token)
    return found


def _splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _list_pieces() -> list[str]:
    known = [*WORDS, *CITIES, *NAMES, *TOOLS, *PARAMETERS, *map(str, range(LAST_NUMBER + 1))]
    return [form for word in known for form in (word, SPACE + word)] + [
        piece.replace("~", SPACE).replace("$", NEWLINE) for piece in _FREQUENT.split()
    ]
