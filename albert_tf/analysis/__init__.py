"""The cost of a model, and the behaviour of its layers."""

# Lan et al. 2020, Table 1: millions of parameters as printed there.
PAPER = {
    "bert_base_uncased": 108,
    "bert_large_uncased": 334,
    "albert_base_v2": 12,
    "albert_large_v2": 18,
    "albert_xlarge_v2": 60,
    "albert_xxlarge_v2": 235,
}
