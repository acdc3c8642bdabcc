"""Faster forms of extensions for exports, each in the module of its extension's name: see `serving.inference.form`."""
