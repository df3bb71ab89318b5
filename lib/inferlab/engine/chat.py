"""Chat templates: a list of messages becomes the one text that a model was trained to continue.

The template comes with the model and is a Jinja program; it is run in Jinja's sandbox, with the
helpers that Hugging Face gives it. Source: transformers documentation, "Chat templates".
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

Messages = Sequence[Mapping[str, Any]]


def render(
    template: str,
    messages: Messages,
    add_generation_prompt: bool,
    special_tokens: Mapping[str, str],
    variables: Mapping[str, Any],
) -> str:
    """The text of a conversation in the model's own format.

    messages               [{"role": "user", "content": "…"}, …] in order
    add_generation_prompt  end with the opening of the assistant's turn
    special_tokens         {"bos_token": "<s>", …}: the template writes them by these names
    variables              whatever else the template reads ("enable_thinking", "tools", …)
    Raises ValueError if the messages are not of that form, or the template refuses them or fails.
    """
    if isinstance(messages, (str, bytes)) or not all(_is_message(m) for m in messages):
        raise ValueError(
            "a chat is a list of messages, each a dict with a role and a content: "
            '[{"role": "user", "content": "Hello"}]'
        )
    context = {"tools": None, "documents": None, **special_tokens, **variables}
    try:
        return _compiled(template).render(
            messages=[dict(m) for m in messages],
            add_generation_prompt=add_generation_prompt,
            **context,
        )
    except (jinja2.TemplateError, TypeError, ArithmeticError, LookupError) as error:
        raise ValueError(f"the model's chat template does not take this chat: {error}") from error


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and isinstance(message.get("role"), str)


class _Generation(Extension):
    """`{% generation %}` … `{% endgeneration %}` marks the assistant's words: shown as is."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


@functools.lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(template)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    """JSON as Hugging Face writes it into templates: no HTML escapes, letters as they are."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
