"""Chat templates: Jinja as Hugging Face runs it, in a sandbox, its refusals passed on."""

import datetime
import json
import shutil

import pytest

from inferlab.engine import chat
from inferlab.engine.tokenizer import Tokenizer

USER = [{"role": "user", "content": "Hi"}]


def render(template, messages=USER, prompt=True, names=None, **variables):
    return chat.render(template, messages, prompt, names or {}, variables)


TEMPLATES = {
    "lines": "{% for m in messages %}\n  {%- if 1 %}\n {{ m.role }}\n  {% endif %}\n{% endfor %}",
    "prompt": "{{ messages[0].content }}{% if add_generation_prompt %}>>{% endif %}",
    "names": "{{ bos_token }}{{ messages[0]['content'] | trim }}{{ eos_token }}",
    "loop": "{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "generation": "{% generation %}\n  said {{ messages|length }}\n{% endgeneration %}!",
    "json": "{{ {'b': 'é<>&', 'a': [1, none]} | tojson }} {{ [1] | tojson(indent=2) }}",
    "space": "{% set n = namespace(k=0) %}{% for m in [1] %}{% set n.k = 1 %}{% endfor %}{{ n.k }}",
    "no tools": "{% if tools is none and not documents %}none{% endif %}",
    "variable": "{% if enable_thinking is defined and not enable_thinking %}fast{% endif %}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_gives_what_transformers_gives(name, tiny_checkpoint):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(tiny_checkpoint("llama3")[0])
    ours = Tokenizer.from_folder(tiny_checkpoint("llama3")[0])
    ours.template = theirs.chat_template = TEMPLATES[name]
    for prompt in (True, False):
        options = {"add_generation_prompt": prompt, "enable_thinking": False}
        expected = theirs.apply_chat_template(USER, tokenize=False, **options)
        assert ours.chat_text(USER, **options) == expected
        assert expected


def test_the_date_is_todays():
    assert render("{{ strftime_now('%Y') }}") in {
        str(datetime.datetime.now().year + k) for k in (-1, 0)
    }


@pytest.mark.parametrize(
    "messages", ["Hi", ["Hi"], [{"content": "Hi"}], [{"role": 1}], [None], b"Hi"]
)
def test_what_is_no_list_of_messages(messages):
    with pytest.raises(ValueError, match="a chat is a list of messages, each a dict with a role"):
        render("{{ messages }}", messages)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "does not take this chat: roles must"),
        ("{% for %}", "does not take this chat"),
        ("{{ messages[0].content.missing.deeper }}", "has no attribute"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "not safely callable|unsafe"),
        ("{{ messages[0].content + 1 }}", "does not take this chat"),
    ],
)
def test_templates_that_fail_or_reach_out_of_the_sandbox(template, words):
    with pytest.raises(ValueError, match=words):
        render(template)


def test_the_messages_are_left_as_they_were():
    messages = [{"role": "user", "content": "Hi"}]
    render("{% set _ = messages[0] %}{{ messages }}", messages)
    assert messages == USER


@pytest.fixture
def folder(tmp_path, tiny_checkpoint):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_checkpoint("llama3")[0] / name, tmp_path)
    return tmp_path


def alter(folder, **values):
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_a_list_of_templates_has_a_default(folder):
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    alter(folder, chat_template=named)
    assert Tokenizer.from_folder(folder).chat_text(USER) == "plain"


def test_a_template_in_a_file_of_its_own_comes_first(folder):
    (folder / "chat_template.jinja").write_text("from the file: {{ messages[0].content }}")
    assert Tokenizer.from_folder(folder).chat_text(USER) == "from the file: Hi"


def test_special_tokens_may_be_written_as_objects(folder):
    alter(
        folder,
        bos_token={"content": "<|im_start|>", "special": True},
        chat_template="{{ bos_token }}",
    )
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.bos == 258
    assert tokenizer.chat(USER) == [258]


def test_a_base_model_has_no_template(folder):
    alter(folder, chat_template=None)
    with pytest.raises(ValueError, match="no chat template .* use encode"):
        Tokenizer.from_folder(folder).chat(USER)
