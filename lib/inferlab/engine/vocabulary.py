"""The parts of a tokenizer, built from what a GGUF file or a Hugging Face folder stores of it.

A GGUF file holds the tokens, the merges and the name of the rule by which text is cut up before
merging (the pre-tokenizer), not the rule itself: the rules are here. They are those the models
were trained with (their tokenizer.json). Sources: tokenizer.json of SmolLM2, Llama-3, Qwen2.5 and
Mistral-Nemo; llama.cpp, src/llama-vocab.cpp (the names, and the same rules as expressions).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # tokenizer.ggml.token_type

_CASELESS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CASELESS + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_QWEN2 = _CASELESS + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
)

# Name in tokenizer.ggml.pre -> rule. "digits": every digit alone, then GPT-2's rule.
_RULES = {
    "smollm": "digits", "starcoder": "digits", "refact": "digits",
    "gpt-2": "gpt2", "default": "gpt2", "": "gpt2", "olmo": "gpt2",
    "llama-bpe": _LLAMA3, "llama3": _LLAMA3, "llama-v3": _LLAMA3,
    "qwen2": _QWEN2, "deepseek-r1-qwen": _QWEN2,
    "tekken": _TEKKEN,
}  # fmt: skip
_WHOLE_WORDS_FIRST = (_LLAMA3, _TEKKEN)  # a word that is a token is taken without merging
_STOPS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>")


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


def from_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary stored in the metadata of a GGUF file (keys as in the file).

    Raises ValueError, naming it, for a kind of tokenizer or a pre-tokenizer that is not known here.
    """
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not tokens:
        raise ValueError("this GGUF file holds no tokenizer: load it with tokenizer=False")
    kinds = metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        backend = _byte_level(tokens, metadata)
        spell = _from_byte_letters
    elif model == "llama":
        backend = _sentencepiece(tokens, kinds, metadata)
        spell = _from_underscores
    else:
        raise ValueError(
            f"a tokenizer of the kind {model!r} is not supported: 'gpt2' (byte-level BPE) and "
            "'llama' (SentencePiece BPE) are; load the model with tokenizer=False"
        )
    marked = {i for i, kind in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)}
    for i in sorted(marked):
        add_token(backend, tokens[i], special=kinds[i] == CONTROL)
    pieces = [t.encode() if i in marked else spell(t) for i, t in enumerate(tokens)]
    special = frozenset(i for i, kind in enumerate(kinds) if kind in (CONTROL, UNKNOWN))
    ids = {
        role: metadata.get(f"tokenizer.ggml.{key}_token_id")
        for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    ends = [ids["eos"], *(metadata.get(f"tokenizer.ggml.{k}_token_id") for k in ("eot", "eom"))]
    ends += [i for i in special if tokens[i] in _STOPS]
    return Vocabulary(
        backend=backend,
        pieces=pieces,
        special=special,
        bos=ids["bos"],
        eos=frozenset(i for i in ends if i is not None),
        add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", _adds_bos(model, metadata))),
        leading=model == "llama" and bool(metadata.get("tokenizer.ggml.add_space_prefix", True)),
        template=metadata.get("tokenizer.chat_template"),
        names={f"{role}_token": tokens[i] for role, i in ids.items() if i is not None},
    )


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
    ends |= {i for i in special if added[i].content in _STOPS}
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


def _byte_level(tokens: Sequence[str], metadata: Mapping[str, Any]) -> Backend:
    pre = metadata.get("tokenizer.ggml.pre") or ""
    if pre not in _RULES:
        raise ValueError(
            f"the pre-tokenizer {pre!r} is not supported: {', '.join(filter(None, _RULES))} are; "
            "load the model with tokenizer=False"
        )
    rule = _RULES[pre]
    merges = [tuple(pair.split(" ", 1)) for pair in metadata.get("tokenizer.ggml.merges") or ()]
    backend = Backend(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=merges,
            ignore_merges=rule in _WHOLE_WORDS_FIRST,
        )
    )
    if rule == _QWEN2:
        backend.normalizer = normalizers.NFC()
    if rule == "gpt2":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif rule == "digits":
        digits = pre_tokenizers.Digits(individual_digits=True)
        gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, gpt2])
    else:
        split = pre_tokenizers.Split(Regex(rule), behavior="isolated")
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, letters])
    return backend


def _sentencepiece(
    tokens: Sequence[str], kinds: Sequence[int], metadata: Mapping[str, Any]
) -> Backend:
    """SentencePiece BPE: the best-scored pair is merged first, so scores become ranked merges."""
    scores = metadata.get("tokenizer.ggml.scores")
    if scores is None:
        raise ValueError("a SentencePiece tokenizer needs scores, and this GGUF file has none")
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = []
    for i, token in enumerate(tokens):
        if kinds[i] == NORMAL:
            pairs = ((token[:k], token[k:]) for k in range(1, len(token)))
            known = [(a, b) for a, b in pairs if a in vocab and b in vocab]
            known.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
            merges += [(-scores[i], pair) for pair in known]
    merges.sort(key=lambda ranked: ranked[0])
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    backend = Backend(
        models.BPE(
            vocab=vocab,
            merges=[pair for _, pair in merges],
            unk_token=tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = [normalizers.Replace(" ", "▁")]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
    backend.normalizer = normalizers.Sequence(spaces)
    return backend


def _adds_bos(model: str, metadata: Mapping[str, Any]) -> bool:
    """Whether bos begins a text where the file does not say: as llama.cpp decides it."""
    return model == "llama" or _RULES[metadata.get("tokenizer.ggml.pre") or ""] == _LLAMA3


def _byte_letters() -> dict[str, int]:
    """GPT-2's letter of every byte, reversed: printable bytes stand for themselves, the others
    for the letters from U+0100 on. Source: openai/gpt-2, encoder.py."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + k): byte for k, byte in enumerate(others)}


_LETTERS = _byte_letters()


def _from_byte_letters(token: str) -> bytes:
    if all(letter in _LETTERS for letter in token):
        return bytes(_LETTERS[letter] for letter in token)
    return token.encode()


def _from_underscores(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def _spelling(spec: Mapping[str, Any], file: Path):
    """(token -> bytes, whether a leading space is taken off), told by the decoder it asks for."""
    parts = _flat(spec.get("decoder"), "decoders")
    kinds = {part["type"] for part in parts}
    if "ByteLevel" in kinds:
        return _from_byte_letters, False
    if {"ByteFallback", "Metaspace"} & kinds or spec["model"].get("byte_fallback"):
        metaspace = any(part.get("prepend_scheme", "never") != "never" for part in parts)
        return _from_underscores, "Strip" in kinds or metaspace
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
