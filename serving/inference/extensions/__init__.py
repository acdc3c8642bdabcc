"""What exports do faster, or need, of some extensions: a module each, with the extension's name."""
