"""Faster or additional code of some extensions for exports: a module each, with the extension's name."""
