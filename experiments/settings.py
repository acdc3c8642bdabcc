"""The settings of a table of experiments, which are the flags of its command."""

import dataclasses

from tfrecords.base.settings import CheckedSettings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSettings(CheckedSettings):
    """Holds the flags: which table, at what size, and where it goes."""

    table: str = setting(help="Folder in experiments/tables; as the first argument it needs no --table=.")
    output_dir: str = setting(help="Folder for vocabularies, examples, runs, results and the page.")
    corpus: str = setting("", help="Globs of text files by commas; not needed where the examples are built.")
    tasks_dir: str = setting(
        "", help="Folder of GLUE's folders, SST-2 and so on; without it the columns of tasks stay empty."
    )
    scale: str = setting("small", help="File of experiments/scales: tiny, small (two cores) or gpu.")
    seeds: int = setting(0, help="Runs of each row; 0: as the scale says.", at_least=0)
    first_seed: int = setting(1, help="Seed of the first run; the others follow.", at_least=0)
    rows: str = setting("", help="Comma-separated rows to train and measure; the page shows all rows that are done.")
    stages: str = setting("train,measure,time,page", help="Comma-separated stages to run.")
    results: str = setting("", help="CSV file of results to write the page from, without running anything.")
    publish: bool = setting(False, help="Also write results, picture and text to docs/results.")
    dryrun: bool = setting(False, help="Run everything at scale tiny with one seed, and save nothing.")
