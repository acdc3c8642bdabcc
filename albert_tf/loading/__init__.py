"""Finds, loads, describes and saves models, and answers texts with them."""
