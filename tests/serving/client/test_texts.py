"""One text is no list of texts: its letters would each be answered."""

import pytest

from serving.benchmark.stand_in import TEXT, StandIn
from serving.client import Client
from tfrecords.base.errors import UserError


def test_a_string_where_a_list_belongs_is_refused():
    message = r"texts must be a list of strings; of one text give \[text\]"
    with StandIn(inputs=TEXT) as server, Client(server.target, "default") as client:
        with pytest.raises(UserError, match=message):
            client.predict_text("Hello World")
        for call in (client.embed, client.classify):
            with pytest.raises(UserError):
                call("Hello World")
