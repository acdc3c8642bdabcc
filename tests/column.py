"""Stands in for a pandas Series, which is not installed with the tests."""


class Column:
    """`[]` takes labels; iteration and length go by position."""

    def __init__(self, values, index=(1, 2, 0)):
        self.values, self.index = list(values), list(index)

    def __getitem__(self, label):
        return self.values[self.index.index(label)]

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return iter(self.values)
