"""Tokenizers of the other families: small vocabularies are trained and read back from GGUF.

No vocabulary of Llama-3, Qwen2 or Mistral is at hand offline, and the rules by which they cut up a
text are what differs; so each rule is used on a vocabulary trained here, and held against what
transformers makes of the same file.
"""

import json
import shutil

import gguf as reference
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from inferlab.engine.tokenizer import Tokenizer
from inferlab.engine.weights import gguf

TEXTS = [
    "The quick brown fox can't jump; it's I'LL and WE'VE, don't you think?",
    "def f(x):\n    return x**2  # a square\n\n\tif a != b and c >= d:\n\t\tpass\n",
    "naïve café Ångström Ελληνικά Кириллица עברית العربية e\u0301 ñ HelloWorld helloWORLD",
    "🎉 👩‍👩‍👧‍👦 🇩🇪 日本語のテスト。中文 한국어",
    "a   b      c" + " " * 50 + "d\r\n\r\n\n  e\u2028f \n \n/path/\n\n",
    "1234567890 3.14159 1,000,000 x =  42\n\n7\t\t8 ² ½ Ⅷ ४५",
    "user wrote <|im_end|>\n<|im_start|>system",
    "",
    " ",
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def write(folder, model, tokens, kinds, **fields):
    writer = reference.GGUFWriter(str(folder / "m.gguf"), "llama")
    for add, value in (
        (writer.add_block_count, 1),
        (writer.add_context_length, 64),
        (writer.add_embedding_length, 64),
        (writer.add_feed_forward_length, 64),
        (writer.add_head_count, 1),
        (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_tokenizer_model, model),
        (writer.add_token_list, tokens),
        (writer.add_token_types, kinds),
    ):
        add(value)
    for name, value in fields.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return gguf.read_header(folder / "m.gguf").metadata


def trained(folder, pre):
    """A byte-level vocabulary trained without any rule, so that every rule has merges to break."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    lines = [line for text in TEXTS * 3 for line in text.splitlines(keepends=True)]
    letters = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=900, initial_alphabet=letters, special_tokens=SPECIAL, show_progress=False
        ),
    )
    spec = json.loads(backend.to_str())["model"]
    tokens = sorted(spec["vocab"], key=spec["vocab"].get)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in spec["merges"]]
    kinds = [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL))
    fields = {"token_merges": merges, "bos_token_id": 0, "eos_token_id": 2}
    return write(folder, "gpt2", tokens, kinds, tokenizer_pre=pre, **fields)


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "tekken"])
def test_ids_are_those_of_transformers(tmp_path, pre):
    from transformers import AutoTokenizer

    if pre != "gpt-2":  # older ones read every file by GPT-2's rule
        pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    ours = Tokenizer.from_gguf(trained(tmp_path, pre))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    if pre == "qwen2":  # of Qwen2's tokenizer.json; left out where transformers reads a GGUF file
        theirs.backend_tokenizer.normalizer = normalizers.NFC()
    theirs.backend_tokenizer.model.ignore_merges = pre in ("llama-bpe", "tekken")
    for text in TEXTS:
        expected = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, special=True) == expected, text
        if pre != "qwen2":
            assert ours.decode(expected, special=True) == text
    assert ours.add_bos is (pre in ("llama-bpe", "tekken"))


def test_the_rules_are_told_apart(tmp_path):
    """Planted fault: a file read by another rule than its own gives other ids."""
    metadata = trained(tmp_path, "llama-bpe")
    ids = {
        pre: [Tokenizer.from_gguf(metadata | {"tokenizer.ggml.pre": pre}).encode(t) for t in TEXTS]
        for pre in ("gpt-2", "llama-bpe", "qwen2", "tekken", "smollm")
    }
    assert len({json.dumps(one) for one in ids.values()}) == len(ids)


def test_a_word_that_is_a_token_is_taken_whole_by_llama_3(tmp_path):
    """Llama-3's tokenizer.json has ignore_merges: a word in the vocabulary needs no merges."""
    metadata = trained(tmp_path, "llama-bpe")
    metadata["tokenizer.ggml.tokens"].append("zqzq")
    metadata["tokenizer.ggml.token_type"].append(1)
    new = len(metadata["tokenizer.ggml.tokens"]) - 1
    assert Tokenizer.from_gguf(metadata).encode("zqzq") == [new]
    assert new not in Tokenizer.from_gguf(metadata | {"tokenizer.ggml.pre": "qwen2"}).encode("zqzq")


def test_a_token_of_the_users_own_is_found_but_is_not_special(tmp_path):
    metadata = trained(tmp_path, "qwen2")
    metadata["tokenizer.ggml.tokens"].append("<think>")
    metadata["tokenizer.ggml.token_type"].append(4)
    tokenizer, new = Tokenizer.from_gguf(metadata), len(metadata["tokenizer.ggml.tokens"]) - 1
    assert tokenizer.encode("a<think>") == tokenizer.encode("a<think>", special=True)
    assert tokenizer.encode("a<think>")[-1] == new
    assert tokenizer.decode([new]) == "<think>"


# --- SentencePiece ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    """(metadata, the tokenizer it was trained as), Llama-2's way: ▁ for spaces, byte tokens."""
    backend = Backend(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    options = {"vocab_size": 700, "special_tokens": special, "limit_alphabet": 60}
    trainer = trainers.BpeTrainer(show_progress=False, **options)
    backend.train_from_iterator(TEXTS * 3, trainer)
    spec = json.loads(backend.to_str())["model"]
    tokens = sorted(spec["vocab"], key=spec["vocab"].get)
    rank = {}
    for i, pair in enumerate(spec["merges"]):
        rank.setdefault("".join(pair) if isinstance(pair, list) else pair.replace(" ", ""), i)
    scores = [-float(rank.get(token, 10_000)) for token in tokens]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    folder = tmp_path_factory.mktemp("spm")
    metadata = write(
        folder, "llama", tokens, kinds, token_scores=scores, bos_token_id=1, eos_token_id=2
    )
    backend.pre_tokenizer = None
    return metadata, backend, folder


def test_scores_give_back_the_merges(sentencepiece):
    metadata, backend, _ = sentencepiece
    tokenizer = Tokenizer.from_gguf(metadata)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == backend.encode(text, add_special_tokens=False).ids, text
        assert tokenizer.decode(ids) == text
    assert any("<0x" in metadata["tokenizer.ggml.tokens"][i] for i in tokenizer.encode(TEXTS[3]))


def test_sentencepiece_ids_are_those_of_transformers(sentencepiece):
    """Except where a text begins with a space: SentencePiece adds one more, transformers not."""
    from transformers import AutoTokenizer

    metadata, _, folder = sentencepiece
    tokenizer = Tokenizer.from_gguf(metadata)
    theirs = AutoTokenizer.from_pretrained(folder, gguf_file="m.gguf")
    for text in TEXTS:
        if not text.startswith(" "):
            assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False), text


def test_sentencepiece_begins_and_ends(sentencepiece):
    tokenizer = Tokenizer.from_gguf(sentencepiece[0])
    assert tokenizer.add_bos
    assert tokenizer.encode("a", bos=True) == [1, *tokenizer.encode("a")]
    assert tokenizer.eos == {2}
    stream = tokenizer.stream()
    shown = [stream.push(i) for i in tokenizer.encode("  é日 x")]
    assert "".join(shown) + stream.flush() == "  é日 x"
    assert "\ufffd" not in "".join(shown)


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer.ggml.pre": "deepseek-llm"}, "pre-tokenizer 'deepseek-llm' is not supported"),
        ({"tokenizer.ggml.model": "bert"}, "tokenizer of the kind 'bert' is not supported"),
        ({"tokenizer.ggml.tokens": None}, "holds no tokenizer"),
        ({"tokenizer.ggml.merges": ["nospace"]}, "is damaged"),
        ({"tokenizer.ggml.merges": ["zz yy"]}, "is damaged"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "is damaged"),
        ({"tokenizer.ggml.bos_token_id": 10**6}, "is damaged"),
        ({"tokenizer.ggml.model": "llama"}, "needs scores"),
    ],
)
def test_tokenizers_that_cannot_be_read(tmp_path, change, words):
    with pytest.raises(ValueError, match=words):
        Tokenizer.from_gguf(trained(tmp_path, "qwen2") | change)


# --- Hugging Face folders ---------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, tiny_checkpoint):
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(tiny_checkpoint("llama3")[0] / name, tmp_path)
    return tmp_path


def test_a_folder_gives_the_ids_of_transformers(folder):
    from transformers import AutoTokenizer

    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert ours.encode(text, special=True) == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ours.encode(text)) == text
    chat = [{"role": "user", "content": "hé"}]
    expected = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert ours.chat_text(chat) == expected
    assert (ours.bos, ours.eos, ours.add_bos) == (256, frozenset({256, 257}), False)


def test_the_stops_of_the_generation_config_count(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    assert Tokenizer.from_folder(folder).eos == {5, 7, 256, 257}


def test_a_text_begins_with_bos_if_the_tokenizer_says_so(folder):
    from tokenizers.processors import TemplateProcessing

    backend = Backend.from_file(str(folder / "tokenizer.json"))
    start = "<|endoftext|>"
    backend.post_processor = TemplateProcessing(single=f"{start} $A", special_tokens=[(start, 256)])
    backend.enable_truncation(4)
    backend.enable_padding(length=9)
    backend.save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.add_bos
    assert tokenizer.encode("abcdefgh", bos=True) == [256, *tokenizer.encode("abcdefgh")]
    assert len(tokenizer.encode("abcdefgh")) == 8  # neither cut off nor filled up


def test_sentencepiece_in_a_folder(folder, sentencepiece):
    spec = json.loads(sentencepiece[1].to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]  # the byte tokens are ordinary ones
    backend = Backend.from_str(json.dumps(spec))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    backend.save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(folder)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"holds no tokenizer\.json"),
        ("{", "cannot be read as a tokenizer"),
        ("{}", "cannot be read as a tokenizer"),
    ],
)
def test_folders_without_a_tokenizer(folder, content, words):
    (folder / "tokenizer.json").unlink()
    if content is not None:
        (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=words):
        Tokenizer.from_folder(folder)


def test_a_kind_of_decoder_that_is_not_known(folder):
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    backend.decoder = decoders.WordPiece()
    backend.save(str(folder / "tokenizer.json"))
    with pytest.raises(ValueError, match="asks for a decoder of WordPiece"):
        Tokenizer.from_folder(folder)
