"""From text to token ids and back, and from a conversation to the prompt a model was trained on."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from inferlab.engine import chat, gguf_vocabulary, vocabulary
from inferlab.engine.vocabulary import Vocabulary


class Tokenizer:
    """A model's tokenizer. Built by `from_gguf` or `from_folder`.

    bos         id that begins a text, None if there is none
    eos         frozenset of the ids that end a reply
    add_bos     whether the model expects a text to begin with bos
    special     frozenset of the ids of control tokens
    vocab_size  number of tokens; a model may have more rows, which stand for nothing
    """

    def __init__(self, words: Vocabulary):
        self.bos, self.eos, self.add_bos = words.bos, words.eos, words.add_bos
        self.special, self.vocab_size = words.special, len(words.pieces)
        self.template = words.template
        self._words = words
        self._plain = _blind(words.backend)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer in the metadata of a GGUF file. Raises ValueError for an unknown kind."""
        return cls(gguf_vocabulary.from_gguf(metadata))

    @classmethod
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer.json of a Hugging Face folder. Raises ValueError without one."""
        return cls(vocabulary.from_folder(Path(folder)))

    def encode(self, text: str, special: bool = False, bos: bool = False) -> list[int]:
        """The token ids of `text`.

        special  a special token spelled out in the text ("<|im_end|>") becomes that token; by
                 default it is read as the letters it is written with, as a user's text must be
        bos      begin with bos if the model expects it
        Characters that need a byte the vocabulary has no token for are left away, as everywhere:
        in SmolLM2 six control characters and planes without any assigned character.
        Raises TypeError if `text` is no str, ValueError if it is no valid Unicode.
        """
        if not isinstance(text, str):
            raise TypeError(f"encode takes a str, not {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the text holds half a surrogate pair at position {error.start}, which is no "
                "character: decode it with errors='replace' where it is read"
            ) from None
        backend = self._words.backend if special else self._plain
        ids = backend.encode(text, add_special_tokens=False).ids
        return [self.bos, *ids] if bos and self.add_bos and self.bos is not None else ids

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of these ids; bytes that are no valid UTF-8 become U+FFFD.

        special  write control tokens out ("<|im_end|>") instead of leaving them away
        Raises ValueError for a negative id. Ids beyond the vocabulary stand for nothing.
        """
        stream = self.stream(special)
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self, special: bool = False) -> TokenStream:
        """A decoder that takes one token after the other; see `TokenStream`."""
        return TokenStream(self, special)

    def piece(self, token: int) -> bytes:
        """The bytes that one token stands for; b"" beyond the vocabulary."""
        if token < 0:
            raise ValueError(f"{token} is no token id: ids are 0 to {self.vocab_size - 1}")
        return self._words.pieces[token] if token < self.vocab_size else b""

    def chat_text(
        self, messages: chat.Messages, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The conversation as the text the model was trained on; see `chat`."""
        if self.template is None:
            raise ValueError(
                "this model has no chat template (it is a base model, which continues a text): "
                "use encode(text, bos=True), or load the model's instruct version"
            )
        return chat.render(
            self.template, messages, add_generation_prompt, self._words.names, variables
        )

    def chat(
        self, messages: chat.Messages, add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """The ids of a conversation, [{"role": "user", "content": "…"}, …], in the model's format.

        add_generation_prompt  end with the opening of the assistant's turn, so that it answers
        variables              further variables of the template, e.g. enable_thinking=False
        As in transformers, special tokens spelled out in a message are read as such.
        Raises ValueError without a template, or if the template refuses the messages.
        """
        text = self.chat_text(messages, add_generation_prompt, **variables)
        return self.encode(text, special=True)


class TokenStream:
    """Decodes a reply as it is made: `push` each token, show what comes back, `flush` at the end.

    A character of several tokens comes back with its last one, so no half character is ever shown;
    all that comes back, joined, is `Tokenizer.decode` of the same ids.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool = False):
        self._tokenizer, self._special = tokenizer, special
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip = tokenizer._words.leading

    def push(self, token: int) -> str:
        """The text that this token completes; "" while a character is unfinished."""
        if token in self._tokenizer.special:
            return self.flush() + self._tokenizer.piece(token).decode() if self._special else ""
        text = self._utf8.decode(self._tokenizer.piece(token))
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never finished, else ""."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


def _blind(backend: Backend) -> Backend:
    """A twin that reads special tokens in a text as ordinary letters; it shares the vocabulary."""
    twin = Backend(backend.model)
    twin.normalizer, twin.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    for _, token in sorted(backend.get_added_tokens_decoder().items()):
        if token.special:
            twin.add_special_tokens([token])
        else:
            twin.add_tokens([token])
    twin.encode_special_tokens = True
    return twin
