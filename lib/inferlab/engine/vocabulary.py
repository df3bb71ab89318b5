"""What a tokenizer is made of, and how to read it from a Hugging Face folder.

The counterpart for GGUF files is `gguf_vocabulary`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

STOPS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>")
"""Tokens that end a reply in some family of models: one that is a control token is a stop."""


@dataclass(frozen=True)
class Vocabulary:
    """What a `Tokenizer` is made of.

    backend   the `tokenizers` object, which turns text into ids
    pieces    id -> the bytes the token stands for
    special   ids of the control tokens;  bos, eos  the beginning, and every token that ends a reply
    add_bos   the model expects every text to begin with bos
    leading   a space is put before the text, and taken off again (SentencePiece)
    template  the chat template, None for a base model; names: what it may write (bos_token, …)
    """

    backend: Backend
    pieces: Sequence[bytes]
    special: frozenset[int]
    bos: int | None
    eos: frozenset[int]
    add_bos: bool
    leading: bool
    template: str | None
    names: Mapping[str, str]


def from_folder(folder: Path) -> Vocabulary:
    """The vocabulary of a Hugging Face folder: tokenizer.json and the files around it.

    Raises ValueError where there is no tokenizer.json or its kind is not known here.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ValueError(
            f"{folder} holds no tokenizer.json (the format of the `tokenizers` library): add it, "
            "or load the model with tokenizer=False"
        )
    try:
        text = file.read_text(encoding="utf-8")
        backend, spec = Backend.from_str(text), json.loads(text)
    except Exception as error:  # the library raises a bare Exception
        raise ValueError(f"{file} cannot be read as a tokenizer: {error}") from None
    backend.no_padding()
    backend.no_truncation()
    added = backend.get_added_tokens_decoder()
    spell, leading = _spelling(spec, file)
    pieces = [b""] * (max(backend.get_vocab().values()) + 1)
    for token, i in backend.get_vocab().items():
        pieces[i] = token.encode() if i in added else spell(token)
    config, names = _tokenizer_config(folder)
    special = frozenset(i for i, token in added.items() if token.special)
    ends = {backend.token_to_id(names.get("eos_token", "")), *_generation_stops(folder)}
    ends |= {i for i in special if added[i].content in STOPS}
    first = backend.encode("", add_special_tokens=True).ids
    return Vocabulary(
        backend=backend,
        pieces=pieces,
        special=special,
        bos=backend.token_to_id(names.get("bos_token", "")),
        eos=frozenset(i for i in ends if i is not None),
        add_bos=bool(first) and first[0] == backend.token_to_id(names.get("bos_token", "")),
        leading=leading,
        template=_template(folder, config),
        names=names,
    )


def add_token(backend: Backend, text: str, special: bool) -> None:
    """Make `text` a token that is found whole in a text, before anything is merged."""
    token = AddedToken(text, special=special, normalized=False)
    if special:
        backend.add_special_tokens([token])
    else:
        backend.add_tokens([token])


def _byte_letters() -> dict[str, int]:
    """GPT-2's letter of every byte, reversed: printable bytes stand for themselves, the others
    for the letters from U+0100 on. Source: openai/gpt-2, encoder.py."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + k): byte for k, byte in enumerate(others)}


_LETTERS = _byte_letters()


def from_byte_letters(token: str) -> bytes:
    """The bytes of a token of byte-level BPE, which writes every byte as one letter."""
    if all(letter in _LETTERS for letter in token):
        return bytes(_LETTERS[letter] for letter in token)
    return token.encode()


def from_underscores(token: str) -> bytes:
    """The bytes of a SentencePiece token: "▁" is a space, "<0x0A>" is the byte 10."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def _spelling(spec: Mapping[str, Any], file: Path):
    """(token -> bytes, whether a leading space is taken off), told by the decoder it asks for."""
    parts = _flat(spec.get("decoder"), "decoders")
    kinds = {part["type"] for part in parts}
    if "ByteLevel" in kinds:
        return from_byte_letters, False
    if {"ByteFallback", "Metaspace"} & kinds or spec["model"].get("byte_fallback"):
        metaspace = any(part.get("prepend_scheme", "never") != "never" for part in parts)
        return from_underscores, "Strip" in kinds or metaspace
    raise ValueError(
        f"{file} asks for a decoder of {', '.join(sorted(kinds)) or 'no kind'}: byte-level BPE and "
        "SentencePiece are supported; load the model with tokenizer=False"
    )


def _flat(part: Mapping[str, Any] | None, key: str) -> list[Mapping[str, Any]]:
    if part is None:
        return []
    return list(part[key]) if part["type"] == "Sequence" else [part]


def _tokenizer_config(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """(tokenizer_config.json, its named special tokens: {"bos_token": "<s>", …})."""
    config = _json(folder / "tokenizer_config.json")
    names = {}
    for role in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(role)
        value = value.get("content") if isinstance(value, dict) else value
        if value is not None:
            names[role] = value
    return config, names


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        return named.get("default")
    return template


def _generation_stops(folder: Path) -> Iterable[int]:
    for name in ("generation_config.json", "config.json"):
        stops = _json(folder / name).get("eos_token_id")
        if stops is not None:
            return stops if isinstance(stops, list) else [stops]
    return []


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
