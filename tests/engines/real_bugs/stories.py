"""The bugs that are driven, in the order of the table in docs/evidence.md."""

from __future__ import annotations

from typing import NamedTuple


class Story(NamedTuple):
    """One public bug: the release that shows it, the first that does not, what must be found."""

    thread: str
    affected: str
    fixed: str
    code: str
    kind: str
    title: str
    cause: str
    focus: str
    """The kind of event that the finding must name."""

    @property
    def arms(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Each trace of the pair and the release that it is recorded from."""
        return ("bad", self.affected), ("good", self.fixed)


STORIES = (
    Story(
        "46453", "0.26.0", "0.27.0", "HKV102", "a",
        "The deepest group's hit is taken for the whole model's",
        "With a connector the largest hit of any group was taken: a recurrent state had outlived "
        "the attention's blocks, and the request went on from where only the state reaches.",
        "resume",
    ),
    Story(
        "48425", "0.26.0", "0.27.0", "HKV306", "a",
        "Attention's hit is taken though no recurrent state is there for it",
        "The other direction of #46453: the states were evicted first, the connector has nothing "
        "to load, and the request goes on without the state of where it begins.",
        "resume",
    ),
    Story(
        "29387", "0.16.0", "0.17.0", "HKV103", "a",
        "A request starts from a recurrent state of the very step that writes it",
        "Two requests with one prefix are admitted in one step; a recurrent layer reads its states "
        "before it writes them.",
        "use",
    ),
    Story(
        "32255", "0.15.1", "0.16.0", "HKV703", "b",
        "An abort gives back the blocks of a load that is still landing",
        "The next request computes into blocks that the aborted request's transfer still writes.",
        "load_begin",
    ),
    Story(
        "45388", "0.22.1", "0.23.0", "HKV503", "c",
        "Two loads hold a prefix each, and the first can never get the rest",
        "Each load was admitted for what it loads alone; the queue is looked through up to the "
        "first request that does not fit.",
        "refuse",
    ),
    Story(
        "57104", "0.30.0", "0.31.0", "HKV503", "c",
        "A load is admitted without room for the tokens that will be speculated",
        "Two loads fill the pool to the last block; the first needs one more for its first step.",
        "refuse",
    ),
    Story(
        "57841", "0.30.0", "0.31.0", "HKV503", "c",
        "A request that holds nothing blocks the way of one whose load has come in",
        "Behind a request that waits for its connector's answer a load was admitted; the first "
        "does not fit beside it, and the look through the queue ends there.",
        "refuse",
    ),
)  # fmt: skip
