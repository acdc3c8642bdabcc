"""How fast and in how much memory text is tokenized and examples are built.

python -m benchmarks.example_building --input=wiki-en.jsonl.gz --tokenizer=30k-clean.model [--official_dir=albert]
python -m benchmarks.example_building --input=wiki-en.jsonl.gz --tokenizer=bpe.json \\
    --settings=recipes/roberta/examples_full_sentences.json

Beside it stand the tokenizer's own library alone (SentencePiece, or for a byte-level BPE `tokenizers`), and
google-research/albert's script. official_dir is a clone of github.com/google-research/albert; without it that side is
left out. Every run is a process of its own, on the same processors.
"""

import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from absl import flags

from benchmarks.machine import machine_line
from benchmarks.timing import seconds_of
from tfrecords.base.script import run_main
from tfrecords.corpus import documents as corpus
from tfrecords.corpus.sections import Chunk, plan_pieces, read_chunks
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import load_tokenizer

_INPUT = flags.DEFINE_string("input", None, "Corpus of at least 60 MB of text.")
_TOKENIZER = flags.DEFINE_string("tokenizer", None, "Tokenizer that the examples are built with.")
_OFFICIAL_DIR = flags.DEFINE_string("official_dir", None, "Clone of google-research/albert.")
_SETTINGS = flags.DEFINE_string("settings", None, "File of settings that examples are built with.")
_WORKERS = flags.DEFINE_integer("workers", 2, "Processes, and processors used.", 1)
_OFFICIAL_MEGABYTES = flags.DEFINE_float("official_megabytes", 1.0, "Text given to the official script.")
_PARAGRAPHS, _WORDS, _CALLS = 2000, 30, 300
_READER_SECONDS = flags.DEFINE_float("reader_seconds", 10.0, "How long to read with dynamic masking.")


def main() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: _WORKERS.value])
    print(f"{machine_line()}, Python {platform.python_version()}")
    tokenizer = load_tokenizer(_TOKENIZER.value)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save(folder / "tokenizer")
        texts = _write_corpora(folder)
        library = "tokenizers" if tokenizer.kind == "bpe" else "SentencePiece"
        alone = _library_alone(folder / "tokenizer", texts["60 MB"])
        print(f"{library + ' alone':24} {alone:6.1f} MB of text a second")
        rows = {size: _build(folder, texts[size], "static") for size in texts}
        for size, (speed, peak) in rows.items():
            print(f"examples, {size:6} of text {speed:6.1f} MB of text a second, {peak:4.0f} MB in the largest process")
        speed, peak = rows["60 MB"]
        print(f"{'ratio to ' + library:24} {speed / alone:6.2f}")
        print(f"memory, 60 MB to 6 MB    {peak / rows['6 MB'][1]:6.2f}")
        if _OFFICIAL_DIR.value:
            official = _official(folder, texts["6 MB"])
            print(f"official script          {official:6.2f} MB of text a second")
            print(f"ratio to official script {speed / official:6.1f}")
        _build(folder, texts["6 MB"], "dynamic")
        print(f"reader, dynamic masks    {_reader(folder / '6 MB dynamic'):6,.0f} tokens a second")
        _tokenize(tokenizer, texts["6 MB"])


def _write_corpora(folder: Path) -> dict[str, Path]:
    """JSON lines of about 6 and 60 MB of text."""
    paths = {}
    for size in ("6 MB", "60 MB"):
        paths[size] = folder / f"{size}.jsonl"
        written = 0
        with open(paths[size], "w", encoding="utf-8") as file:
            for document in corpus.read_documents(_INPUT.value):
                line = json.dumps({"text": "\n".join(document)}, ensure_ascii=False) + "\n"
                written += len(line.encode())
                if written > float(size.split()[0]) * 1e6:
                    break
                file.write(line)
    return paths


def _tokenize(tokenizer: Tokenizer, path: Path) -> None:
    """Prints what Python and the graph need for the lines of a corpus."""
    import tensorflow as tf

    lines = [line for document in corpus.read_documents(str(path)) for line in document]
    tokenizer.encode_batch(lines[:100])
    seconds = min(seconds_of(lambda: tokenizer.encode_batch(lines)) for _ in range(3))
    print(
        f"Python, one processor    {sum(len(line.encode()) for line in lines) / 1e6 / seconds:6.1f} MB of text a second"
    )
    twin = tokenizer.in_graph()
    function = tf.function(twin, input_signature=[tf.TensorSpec([None], tf.string)]).get_concrete_function()
    bulk = tf.constant(lines[:_PARAGRAPHS])
    tokens = int(tf.size(function(bulk).values))
    seconds = statistics.median(seconds_of(lambda: function(bulk)) for _ in range(5))
    each = seconds / tokens * 1e6
    print(f"graph, in bulk           {each:6.2f} us a token ({_PARAGRAPHS:,} paragraphs, {tokens:,} tokens)")
    words = next(words for line in lines if len(words := line.split()) >= _WORDS)[:_WORDS]
    short = tf.constant([" ".join(words)])
    seconds = statistics.median(seconds_of(lambda: function(short)) for _ in range(_CALLS))
    print(f"graph, one text          {seconds * 1e3:6.2f} ms for {_WORDS} words (median of {_CALLS})")


def _library_alone(tokenizer: Path, path: Path) -> float:
    """MB a second of the library that the tokenizer comes from over the lines of the corpus, in as many processes."""
    chunks = [chunk for (section,) in plan_pieces([path], 8_000_000) for chunk in read_chunks(section, 10_000_000)]
    with multiprocessing.get_context("spawn").Pool(_WORKERS.value, _load, (tokenizer,)) as pool:
        # The first round pays for the start of the processes.
        pool.map(_encode, [chunks[0]] * _WORKERS.value, chunksize=1)
        start = time.perf_counter()
        pool.map(_encode, chunks, chunksize=1)
        return sum(len(chunk.data) for chunk in chunks) / 1e6 / (time.perf_counter() - start)


def _load(path: Path) -> None:
    global _encode_in_this_worker
    tokenizer = load_tokenizer(path)
    if tokenizer.kind == "bpe":
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        import tokenizers

        _encode_in_this_worker = tokenizers.Tokenizer.from_file(str(path / tokenizer.file_name)).encode_batch_fast
    else:
        _encode_in_this_worker = tokenizer._processor.encode_as_numpy


def _encode(chunk: Chunk) -> int:
    texts = corpus.read_texts(chunk, "text")
    return len(_encode_in_this_worker([line for text in texts for line in corpus.sentences_of(text.decode(), False)]))


def _build(folder: Path, text: Path, masking: str) -> tuple[float, float]:
    """(MB of text a second, peak MB of the largest process) of a whole run of the script."""
    command = [sys.executable, "-m", "tfrecords.create_pretraining_data", f"--input={text}"]
    command += [f"--tokenizer={folder / 'tokenizer'}", f"--output_dir={folder / text.stem} {masking}"]
    command.append(f"--settings={_SETTINGS.value}" if _SETTINGS.value else f"--masking={masking}")
    seconds, usage = _run([*command, f"--workers={_WORKERS.value}"])
    return text.stat().st_size / 1e6 / seconds, usage / 1e3


def _run(command: list[str], **options) -> tuple[float, int]:
    """(seconds, peak resident kilobytes of the process and those it waited for)."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, **options)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            errors.seek(0)
            sys.exit(f"error: {' '.join(command)} failed:\n{errors.read()[-2000:].decode()}")
    return time.perf_counter() - start, usage.ru_maxrss


def _official(folder: Path, text: Path) -> float:
    """MB a second of google-research/albert's script, run by today's TensorFlow through its compat.v1."""
    plain = folder / "official.txt"
    with open(text, encoding="utf-8") as rows, open(plain, "w", encoding="utf-8") as file:
        for row in rows:
            if file.tell() > _OFFICIAL_MEGABYTES.value * 1e6:
                break
            file.write(json.loads(row)["text"] + "\n\n")
    return plain.stat().st_size / 1e6 / run_official(Path(_OFFICIAL_DIR.value), plain, _TOKENIZER.value, folder)


def run_official(clone: Path, text: Path, spm_model: str, folder: Path) -> float:
    """Seconds that the script of a clone takes; `folder` gets what it writes."""
    # Its modules import each other as `albert.*`, and tensorflow_hub for a function that is not called.
    modules = folder / "modules"
    modules.mkdir()
    (modules / "albert").symlink_to(clone.resolve())
    (modules / "tensorflow_hub.py").write_text("")
    environment = os.environ | {"PYTHONPATH": str(modules), "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-m", "albert.create_pretraining_data", "--dupe_factor=1", f"--input_file={text}"]
    command += [f"--output_file={folder / 'official.tfrecord'}", "--vocab_file=", f"--spm_model_file={spm_model}"]
    seconds, _ = _run(command, env=environment)
    return seconds


def _reader(folder: Path) -> float:
    from tfrecords.reader import read_examples

    batches = iter(read_examples(str(folder), 32, training=True))
    tokens = next(batches)["input_ids"].shape.num_elements()
    start = time.perf_counter()
    count, seconds = 0, 0.0
    while seconds < _READER_SECONDS.value:
        next(batches)
        count, seconds = count + 1, time.perf_counter() - start
    return count * tokens / seconds


if __name__ == "__main__":
    flags.mark_flags_as_required(["input", "tokenizer"])
    run_main(main)
