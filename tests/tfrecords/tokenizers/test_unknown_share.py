"""A vocabulary of another language, and files that are no text, are met before a build begins."""

import gzip

from tests.refusals import refused
from tfrecords import create_pretraining_data
from tfrecords.create_pretraining_data import unknown_share

CHINESE = "机器学习是人工智能的一个分支，它研究如何从数据中学习。\n\n今天天气很好，我们去公园。\n"  # noqa: RUF001


def test_the_share_of_own_text_is_small_and_of_chinese_large(tokenizer, corpus_file, tmp_path):
    assert unknown_share([corpus_file], tokenizer) < 0.01
    chinese = tmp_path / "zh.txt.gz"
    chinese.write_bytes(gzip.compress(CHINESE.encode()))
    assert unknown_share([chinese], tokenizer) > 0.3


def test_the_sample_reaches_every_part_of_the_corpus(tokenizer, tmp_path):
    paths = [tmp_path / f"{number}.txt" for number in range(3)]
    for path in paths[:2]:
        path.write_text("the value of an object\n" * 3000)
    paths[2].write_text(CHINESE * 1000, encoding="utf-8")
    assert unknown_share(paths[:2], tokenizer) == 0 < unknown_share(paths, tokenizer)
    large = tmp_path / "large.txt"
    large.write_text("the value of an object\n\n" * 100_000 + CHINESE * 5000, encoding="utf-8")
    assert 0 < unknown_share([large], tokenizer) < 1


def test_the_command_refuses_and_writes_nothing(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "vocabulary")
    (tmp_path / "zh.txt").write_text(CHINESE, encoding="utf-8")
    places = {"input": "zh.txt", "tokenizer": "vocabulary", "output_dir": "data"}
    given = {name: str(tmp_path / place) for name, place in places.items()}
    with refused("of the corpus's tokens are unknown .* made for another language .* --max_unknown_share=1"):
        create_pretraining_data.main(create_pretraining_data.CreateSettings(**given))
    assert not (tmp_path / "data").exists()
