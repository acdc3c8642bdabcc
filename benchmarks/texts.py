"""Real sentences that need no download: the help topics of Python, and a vocabulary trained on them."""

import re
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

from tfrecords.base import files


def topics_and_vocabulary(folder: Path, vocab_size: int) -> tuple[Path, Path]:
    """Returns a corpus (a paragraph a line, a blank line between topics) and a SentencePiece model; makes both once."""
    text, vocabulary = folder / "topics.txt", folder / "spm.model"
    if not vocabulary.is_file():
        documents = ["\n".join(_paragraphs(topics[name])) for name in sorted(topics)]
        with files.replacing(text) as temporary:
            temporary.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
        command = [f"--input={text}", f"--output_prefix={folder}/spm", f"--vocab_size={vocab_size}"]
        command = ["tfrecords.train_tokenizer", *command, "--nohard_vocab_limit"]
        subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.DEVNULL)
    return text, vocabulary


def _paragraphs(text: str) -> list[str]:
    """Unwraps hard-wrapped paragraphs and drops the underlines of headings."""
    without_rules = re.sub(r"(?m)^[ \t]*([*=\-~^\"])\1{2,}[ \t]*$", "", text)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", without_rules) if part.strip()]
