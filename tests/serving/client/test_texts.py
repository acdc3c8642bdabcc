"""One text is no list of texts: its letters would each be answered."""

import pytest

from serving.client.client import ClientBase
from tfrecords.base.errors import UserError


def test_a_string_where_a_list_belongs_is_refused():
    with pytest.raises(UserError, match=r"texts must be a list of strings; of one text give \[text\]"):
        ClientBase._split_text(None, "Hello World", None)
