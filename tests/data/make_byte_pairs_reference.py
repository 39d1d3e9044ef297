#!/usr/bin/env python3
"""Writes byte_pairs_reference.json: small tokenizers of four styles, texts, and the tokens that `tokenizers` gives for them.

    .venv/bin/python tests/data/make_byte_pairs_reference.py
"""
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parent
TRAINING = [line for name in ("README.md", "docs/bert.md", "docs/glossary.md")
            for line in (FOLDER.parents[1] / name).read_text().splitlines()]
TIKTOKEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
            r"\s+(?!\S)|\s+")
ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=ALPHABET, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.train_from_iterator(TRAINING, trainer)
    return json.loads(tokenizer.to_str())


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(TIKTOKEN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=ALPHABET, special_tokens=["<|begin_of_text|>"],
                                  show_progress=False)
    tokenizer.train_from_iterator(TRAINING, trainer)
    document = json.loads(tokenizer.to_str())
    # A token that no merge produces and that only ignore_merges finds.
    document["model"]["vocab"]["unmergeable"] = 600
    return document


def qwen2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(TIKTOKEN.replace("{1,3}", "")), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=ALPHABET, special_tokens=["<|endoftext|>", "<n>"],
                                  show_progress=False)
    tokenizer.train_from_iterator([*TRAINING, *["\u1ec7 \uac01 \u00e9"] * 20], trainer)
    document = json.loads(tokenizer.to_str())
    # The first is not normalized, like all special tokens of Qwen 2; the other is searched after normalizing.
    document["added_tokens"][1]["normalized"] = True
    return document


def llama2():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    mark = "\u2581"
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(mark), normalizers.Replace(" ", mark)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(mark, " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=special, max_token_length=12, show_progress=False)
    tokenizer.train_from_iterator([word for line in TRAINING for word in line.split("  ")], trainer)
    document = json.loads(tokenizer.to_str())
    # Bytes are tokens, but a text cannot name them.
    document["added_tokens"] = document["added_tokens"][:3]
    return document


def texts():
    random.seed(5)
    pieces = [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "'\u017f", "don't", "I'm", "x", "Ünïcödé", "文字", "١٢٣", "1234567",
              "½", "e\u0301", "👍🏽", "…", "--", "\u00a0", "\u0085", "\u2028", "<s>", "<|endoftext|>", "unmergeable", "▁", "ZeRO",
              "training", "memory", "\x00", "\x7f", "ǅ", "Ⅷ", "_", "🇩🇪", "a\u200db"]
    drawn = ["".join(random.choice(pieces) for _ in range(random.randint(1, 12))) for _ in range(120)]
    return ["", " ", "  ", "a", *TRAINING[:40], "".join(pieces), *drawn, "a" * 300, " " * 50 + "x", *composed_texts()]


def composed_texts():
    """Returns texts that NFC changes: marks in any order, composed or not, blocked or excluded ones, and Hangul letters."""
    marks = [chr(point) for point in (0x300, 0x301, 0x308, 0x30C, 0x323, 0x327, 0x328, 0x31B, 0x334, 0x338, 0x340, 0x344, 0x345,
                                      0x35C, 0x5B4, 0x64E, 0x651, 0x93C, 0x9BE, 0x3099, 0x302A, 0x1D165, 0x1D16E, 0xE38, 0xF71)]
    others = ["a", "e", "i", "u", "A", "O", "s", "\u00ea", "\u1ea1", "\u01d5", "\u1e69", "\u212b", "\u2126", "\u0958", "\u0928",
              "\u09c7", "\u30ab", "\u03b1", "\u1fb3", "\ufb2c", "\uf900", "\U0002f800", "\U0001d15e", "\u1100", "\u1161", "\u11a8",
              "\uac00", "\uac01", "\ub8e8", "\u3042", "\u2adc", ">", "<n>", "<|endoftext|>", " ", "\n", "7", "\u094d"]
    generator = random.Random(7)
    return ["".join(generator.choice(marks if generator.random() < 0.5 else others) for _ in range(generator.randint(2, 20)))
            for _ in range(60)]


def main():
    result = {"texts": texts(), "tokenizers": {}}
    for make in (gpt2, llama3, qwen2, llama2):
        document = make()
        tokenizer = Tokenizer.from_str(json.dumps(document))
        tokens = [tokenizer.encode(text, add_special_tokens=False).ids for text in result["texts"]]
        result["tokenizers"][make.__name__] = {"file": document, "tokens": tokens}
    (FOLDER / "byte_pairs_reference.json").write_text(json.dumps(result, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
