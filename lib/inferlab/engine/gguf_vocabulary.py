"""The vocabulary of a tokenizer, built from the metadata of a GGUF file.

A GGUF file holds the tokens, the merges and the name of the rule by which text is cut up before
merging (the pre-tokenizer), not the rule itself: the rules are here. They are those the models
were trained with (their tokenizer.json). Sources: tokenizer.json of SmolLM2, Llama-3, Qwen2.5 and
Mistral-Nemo; llama.cpp, src/llama-vocab.cpp (the names, and the same rules as expressions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from inferlab.engine import vocabulary
from inferlab.engine.vocabulary import Vocabulary

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
_WHOLE_FIRST = (_LLAMA3, _TEKKEN)  # a word that is a token is taken whole; bos begins a text
_DEFAULT_IDS = {"gpt2": {}, "llama": {"bos": 1, "eos": 2, "unk": 0}}  # as llama.cpp has them


def from_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary stored in the metadata of a GGUF file (keys as in the file).

    Raises ValueError, naming it, for a kind of tokenizer or a pre-tokenizer that is not known
    here, and for a vocabulary that does not hang together.
    """
    try:
        return _read(metadata)
    except ValueError:
        raise
    except Exception as error:  # the `tokenizers` library raises a bare Exception
        raise ValueError(
            f"the tokenizer in this GGUF file is damaged ({error}): fetch the file again, or load "
            "the model with tokenizer=False"
        ) from error


def _read(metadata: Mapping[str, Any]) -> Vocabulary:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not tokens:
        raise ValueError("this GGUF file holds no tokenizer: load it with tokenizer=False")
    kinds = metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    if len(kinds) != len(tokens):
        raise IndexError(f"{len(tokens)} tokens and {len(kinds)} types")
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        backend = _byte_level(tokens, metadata)
        spell = vocabulary.from_byte_letters
    elif model == "llama":
        backend = _sentencepiece(tokens, kinds, metadata)
        spell = vocabulary.from_underscores
    else:
        raise ValueError(
            f"a tokenizer of the kind {model!r} is not supported: 'gpt2' (byte-level BPE) and "
            "'llama' (SentencePiece BPE) are; load the model with tokenizer=False"
        )
    marked = {i for i, kind in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)}
    for i in sorted(marked):
        vocabulary.add_token(backend, tokens[i], special=kinds[i] == CONTROL)
    pieces = [t.encode() if i in marked else spell(t) for i, t in enumerate(tokens)]
    special = frozenset(i for i, kind in enumerate(kinds) if kind in (CONTROL, UNKNOWN))
    ids = {
        role: metadata.get(f"tokenizer.ggml.{key}_token_id", _DEFAULT_IDS[model].get(role))
        for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    ends = [ids["eos"], *(metadata.get(f"tokenizer.ggml.{k}_token_id") for k in ("eot", "eom"))]
    ends += [i for i in special if tokens[i] in vocabulary.STOPS]
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


def _byte_level(tokens: Sequence[str], metadata: Mapping[str, Any]) -> Backend:
    pre = metadata.get("tokenizer.ggml.pre") or ""
    if pre not in _RULES:
        raise ValueError(
            f"the pre-tokenizer {pre!r} is not supported: {', '.join(filter(None, _RULES))} are; "
            "load the model with tokenizer=False"
        )
    rule = _RULES[pre]
    pairs = metadata.get("tokenizer.ggml.merges") or ()
    split = ((pair[0], *pair[1:].partition(" ")) for pair in pairs)  # a token may begin with " "
    merges = [(first + rest, second) for first, rest, _, second in split]
    backend = Backend(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=merges,
            ignore_merges=rule in _WHOLE_FIRST,
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
    """SentencePiece BPE: the best-scored pair is merged first, so scores become ranked merges.

    A space is put before the text and after every special token, as SentencePiece and llama.cpp do.
    """
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
    return model == "llama" or _RULES[metadata.get("tokenizer.ggml.pre") or ""] in _WHOLE_FIRST
